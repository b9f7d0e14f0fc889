"""The files of a submission: kernels, binding, model_new.py, and the small program that times variants."""

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.backends.builtin import emit_cpu, emit_cuda, emit_triton
from agent.backends.builtin.c_names import CTYPES
from agent.backends.builtin.graph import Graph, Leaf
from agent.backends.builtin.ir import Unsupported
from agent.backends.builtin.kernels import Buffer, Program
from agent.backends.builtin.lowering import lower
from agent.backends.builtin.schedule import schedule
from agent.backends.builtin.text import render

DTYPE: Final = {"float32": "", "int64": ", dtype=torch.int64", "int32": ", dtype=torch.int32"}
WIDTHS: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1, "int32": 4, "int64": 8}  # bytes
BENCH_BYTES: Final = {"cpu": 192 << 20, "cuda": 2 << 30}
BENCH_SETS: Final = 12
MOST_ARGUMENTS: Final = 60  # of a launcher

Variant = emit_cpu.Variant | emit_cuda.Variant


@dataclass(frozen=True)
class Submission:
    """Text of every file, by its path in the workspace."""

    files: Mapping[str, str]
    kernels: int


def make(graph: Graph, target: str, variant: Variant | None = None) -> Submission:
    """Raises ir.Unsupported."""
    files, program = _sources(graph, target, variant)
    files["model_new.py"] = module_text(program, graph, target=target)
    return Submission(files, len(program.kernels))


def make_triton(graph: Graph, variant: emit_triton.Variant | None = None) -> Submission:
    """The same forward as Triton kernels in model_new.py alone. Raises ir.Unsupported."""
    low = lower(graph, halves=True)
    planned = schedule(low.outputs, dtypes=low.dtypes, machine=emit_triton.MACHINE)
    kernels, program = emit_triton.kernels(planned, variant or emit_triton.VARIANTS[0])
    values = _module_values(program, graph)
    names = dict(zip([b.name for b in program.inputs], values["passed"], strict=False))
    for kernel in kernels:
        kernel["passed"] = [names.get(name, name) for name in kernel["parameters"]]
    return Submission({"model_new.py": render("triton/model_new.py.j2", kernels=kernels, **values)}, len(kernels))


def variants(target: str) -> tuple[Variant, ...]:
    """What is tried on a target; the first is the default."""
    return emit_cuda.VARIANTS if target == "cuda" else emit_cpu.VARIANTS


def kernel_file(target: str) -> str:
    return emit_cuda.FILE if target == "cuda" else emit_cpu.FILE


def _sources(graph: Graph, target: str, variant: Variant | None) -> tuple[dict[str, str], Program]:
    low = lower(graph, halves=True)
    if target == "cuda":
        chosen = variant if isinstance(variant, emit_cuda.Variant) else emit_cuda.VARIANTS[0]
        return emit_cuda.sources(schedule(low.outputs, dtypes=low.dtypes, machine=emit_cuda.MACHINE), chosen)
    wanted = variant if isinstance(variant, emit_cpu.Variant) else emit_cpu.VARIANTS[0]
    return emit_cpu.sources(schedule(low.outputs, dtypes=low.dtypes, machine=emit_cpu.MACHINE), wanted)


def bench(graph: Graph, target: str, *, rounds: int) -> dict[str, str]:
    """A program that times shared libraries with the function `fused`, by its file name."""
    program = _sources(graph, target, None)[1]
    buffers = [*program.inputs, *program.outputs, *program.scratch]
    size = sum(map(_bytes, buffers))
    held = BENCH_BYTES[target]
    text = render(
        f"{target}/bench.{'cu' if target == 'cuda' else 'cpp'}.j2",
        types=[f"{'const ' if b in program.inputs else ''}{_in_bench(b, target)}*" for b in buffers],
        buffers=[{"type": _in_bench(b, target), "name": b.name, "size": b.size} for b in buffers],
        calls=[f"{buffer.name}[set]" for buffer in buffers],
        traffic=sum(_bytes(buffer) for buffer in (*program.inputs, *program.outputs)),
        sets=max(1, min(BENCH_SETS, held // max(size, 1))),
        rounds=rounds,
    )
    return {f"bench.{'cu' if target == 'cuda' else 'cpp'}": text}


def _bytes(buffer: Buffer) -> int:
    return buffer.size * WIDTHS[buffer.dtype]


def _in_bench(buffer: Buffer, target: str) -> str:
    """The element type; on a CPU, 16-bit floats are nothing but bits there."""
    return "uint16_t" if target == "cpu" and WIDTHS[buffer.dtype] == 2 else CTYPES[buffer.dtype]


def output_shapes(graph: Graph) -> list[tuple[int, ...]]:
    shapes = {node.name: node.shape or () for node in graph.nodes}
    return [shapes[output["of"]] for output in graph.outputs]


def module_text(program: Program, graph: Graph, *, target: str) -> str:
    """model_new.py: the state_dict's names, memory for the results, and one call."""
    values = _module_values(program, graph)
    if len(values["passed"]) > MOST_ARGUMENTS:
        raise Unsupported(f"a graph with more than {MOST_ARGUMENTS} tensors")
    return render("model_new.py.j2", module=f"{target}_extension", device=target, **values)


def _module_values(program: Program, graph: Graph) -> dict[str, Any]:
    leaves = {f"in_{leaf.name}": leaf for leaf in graph.leaves}
    count = 1 + max((leaf.position for leaf in graph.leaves if leaf.position is not None), default=-1)
    read = [leaves[buffer.name] for buffer in program.inputs]
    shapes = output_shapes(graph)
    made = [{"name": b.name, "shape": s, "dtype": b.dtype} for b, s in zip(program.outputs, shapes, strict=True)]
    made += [{"name": b.name, "shape": (b.size,), "dtype": b.dtype} for b in program.scratch]
    return {
        "declarations": declarations(graph.leaves),
        "arguments": [f"x{k}" for k in range(count)],
        "inputs": [
            {"name": _passed(leaf), "shape": leaf.shape, "stride": leaf.stride} for leaf in read if leaf.kind == "input"
        ],
        "made": made,
        "passed": [*map(_passed, read), *(str(item["name"]) for item in made)],
        "result": _result(graph.nest),
    }


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


def _result(nest: Any) -> str:
    if isinstance(nest, int):
        return f"out{nest}"
    if isinstance(nest, list):
        return f"[{', '.join(map(_result, nest))}]"
    if "tuple" in nest:
        parts = [_result(item) for item in nest["tuple"]]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    return "{" + ", ".join(f'"{key}": {_result(item)}' for key, item in nest["dict"].items()) + "}"
