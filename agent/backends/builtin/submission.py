"""The files of a submission: kernels, binding, model_new.py, and the small program that times variants."""

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.backends.builtin import emit_cpu
from agent.backends.builtin.emit_cpu import CTYPES, Variant
from agent.backends.builtin.graph import Graph, Leaf
from agent.backends.builtin.kernels import Buffer, Program
from agent.backends.builtin.lowering import lower
from agent.backends.builtin.schedule import schedule
from agent.backends.builtin.text import render

TORCH: Final = {"float32": "kFloat32", "bool": "kBool", "int64": "kInt64", "int32": "kInt32", "uint8": "kUInt8"}
DTYPE: Final = {"float32": "", "int64": ", dtype=torch.int64", "int32": ", dtype=torch.int32"}
BENCH_BYTES: Final = 192 << 20
BENCH_SETS: Final = 12


@dataclass(frozen=True)
class Submission:
    """Text of every file, by its path in the workspace."""

    files: Mapping[str, str]
    kernels: int
    passes_over_memory: str


def make(graph: Graph, variant: Variant) -> Submission:
    """Raises ir.Unsupported."""
    lowered = lower(graph)
    program = schedule(lowered.outputs)
    files = emit_cpu.sources(program, variant)
    files["kernels/fused_binding.cpp"] = _binding(program, graph)
    files["model_new.py"] = module_text(program, graph, module="cpu_extension")
    return Submission(files, len(program.kernels), "")


def bench(graph: Graph, *, rounds: int) -> str:
    """A program that times shared libraries with the function `fused`."""
    program = schedule(lower(graph).outputs)
    emit_cpu.sources(program)
    buffers = [*program.inputs, *program.outputs, *program.scratch]
    size = sum(buffer.size * (4 if buffer.dtype == "float32" else 8) for buffer in buffers)
    return render(
        "cpu/bench.cpp.j2",
        types=[_pointer(buffer, program) for buffer in buffers],
        buffers=[{"type": CTYPES[b.dtype], "name": b.name, "size": b.size} for b in buffers],
        calls=[f"{buffer.name}[set]" for buffer in buffers],
        sets=max(1, min(BENCH_SETS, BENCH_BYTES // max(size, 1))),
        rounds=rounds,
    )


def _pointer(buffer: Buffer, program: Program) -> str:
    return f"{'const ' if buffer in program.inputs else ''}{CTYPES[buffer.dtype]}*"


def _binding(program: Program, graph: Graph) -> str:
    leaves = {f"in_{leaf.name}": leaf for leaf in graph.leaves}
    inputs = [
        {"name": b.name, "type": TORCH[b.dtype], "shape": leaves[b.name].shape, "stride": leaves[b.name].stride}
        for b in program.inputs
    ]
    shapes = output_shapes(graph)
    outputs = [
        {"name": b.name, "type": TORCH[b.dtype], "shape": shape}
        for b, shape in zip(program.outputs, shapes, strict=True)
    ]
    scratch = [{"name": b.name, "type": TORCH[b.dtype], "size": b.size} for b in program.scratch]
    every = [*program.inputs, *program.outputs, *program.scratch]
    return render(
        "cpu/binding.cpp.j2",
        parameters=[f"{_pointer(b, program)} {b.name}" for b in every],
        inputs=inputs,
        outputs=outputs,
        scratch=scratch,
        all=[{"pointer": _data(b, program)} for b in every],
    )


def _data(buffer: Buffer, program: Program) -> str:
    if buffer.dtype == "bool":
        return f"reinterpret_cast<{_pointer(buffer, program)}>({buffer.name}.data_ptr<bool>())"
    return f"{buffer.name}.data_ptr<{CTYPES[buffer.dtype]}>()"


def output_shapes(graph: Graph) -> list[tuple[int, ...]]:
    shapes = {node.name: node.shape or () for node in graph.nodes}
    return [shapes[output["of"]] for output in graph.outputs]


def module_text(program: Program, graph: Graph, *, module: str) -> str:
    """model_new.py: the state_dict's names, and one call."""
    leaves = {f"in_{leaf.name}": leaf for leaf in graph.leaves}
    count = 1 + max((leaf.position for leaf in graph.leaves if leaf.position is not None), default=-1)
    return render(
        "model_new.py.j2",
        module=module,
        declarations=declarations(graph.leaves),
        arguments=[f"x{k}" for k in range(count)],
        passed=[_passed(leaves[buffer.name]) for buffer in program.inputs],
        outputs=len(program.outputs),
        nested=graph.nest != 0,
        result=_result(graph.nest, single=len(program.outputs) == 1 and graph.nest == 0),
    )


def _passed(leaf: Leaf) -> str:
    return f"x{leaf.position}" if leaf.kind == "input" else attribute(leaf.target or "")


def attribute(target: str) -> str:
    """self.norm.weight; getattr for the parts that are no names of Python (numbers in a Sequential)."""
    text = "self"
    for part in target.split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part)
        text = f"{text}.{part}" if plain else f'getattr({text}, "{part}")'
    return text


def declarations(leaves: Sequence[Leaf]) -> list[str]:
    """Lines that give a module the parameters and buffers of the task, in nested empty modules."""
    lines: list[str] = []
    made: set[str] = set()
    for leaf in leaves:
        if leaf.kind not in ("parameter", "buffer") or leaf.target is None:
            continue
        *path, name = leaf.target.split(".")
        for depth in range(1, len(path) + 1):
            inner = ".".join(path[:depth])
            if inner not in made:
                made.add(inner)
                owner = attribute(".".join(path[: depth - 1])) if depth > 1 else "self"
                lines.append(f'{owner}.add_module("{path[depth - 1]}", nn.Module())')
        owner = attribute(".".join(path)) if path else "self"
        shape = f"({', '.join(map(str, leaf.shape))}{',' if len(leaf.shape) == 1 else ''})"
        dtype = DTYPE.get(leaf.dtype, f", dtype=torch.{leaf.dtype}")
        if leaf.kind == "parameter":
            lines.append(f'{owner}.register_parameter("{name}", nn.Parameter(torch.empty({shape}{dtype})))')
        else:
            lines.append(f'{owner}.register_buffer("{name}", torch.empty({shape}{dtype}))')
    return lines


def _result(nest: Any, *, single: bool) -> str:
    if single:
        return "output"
    if isinstance(nest, int):
        return f"outputs[{nest}]"
    if isinstance(nest, list):
        return f"[{', '.join(_result(item, single=False) for item in nest)}]"
    if "tuple" in nest:
        parts = [_result(item, single=False) for item in nest["tuple"]]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return "{" + ", ".join(f'"{key}": {_result(item, single=False)}' for key, item in nest["dict"].items()) + "}"
