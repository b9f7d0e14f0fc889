"""CUDA C++ for target cuda: pointwise kernels over vectors of four, rows by blocks, reductions of outer axes by tiles,
products through cuBLAS.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from agent.backends.builtin import loops
from agent.backends.builtin.affine import Affine, Atom, Chosen, total
from agent.backends.builtin.c_names import CTYPES, IDENTITY, INFIX
from agent.backends.builtin.ir import Unsupported
from agent.backends.builtin.kernels import (
    Accumulate,
    Buffer,
    Pass,
    ProductKernel,
    Program,
    Ref,
    RowKernel,
    Statement,
    Store,
)
from agent.backends.builtin.schedule import Machine
from agent.backends.builtin.text import number, render

FILE: Final = "kernels/fused.cu"
MACHINE: Final = Machine(few_rows=64, stash_elements=0)
VECTOR: Final = 4
SMALL: Final = 1 << 30
WARP_COLS: Final = 1024  # up to here a warp takes a row, above it a block does
SPLIT_CHUNK: Final = 1 << 14
ROW_CHUNK: Final = 128
CALLS: Final = {
    "exp": "expf", "log": "logf", "log1p": "log1pf", "expm1": "expm1f", "sqrt": "sqrtf", "rsqrt": "rsqrtf",
    "sin": "sinf", "cos": "cosf", "tanh": "tanhf", "erf": "erff", "floor": "floorf", "ceil": "ceilf",
    "round": "rintf", "trunc": "truncf", "abs": "fabsf", "recip": "recip", "sigmoid": "sigmoid", "relu": "relu",
    "max": "nan_max", "min": "nan_min",
}  # fmt: skip
COMBINE: Final = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min"}


@dataclass(frozen=True)
class Variant:
    """What is tried: threads of a block, and elements a thread takes at once."""

    threads: int = 256
    vector: int = VECTOR

    @property
    def words(self) -> str:
        return f"{self.threads} threads a block"

    @property
    def settings(self) -> tuple[str, ...]:
        """The lines of the source in which variants differ."""
        return (f"constexpr int THREADS = {self.threads};\n",)


VARIANTS: Final = (Variant(256), Variant(512), Variant(128))


@dataclass
class _Body:
    """Lines of one pass: before the elements, for each of a vector's elements, after them."""

    cols: list[dict[str, Any]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    each: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    lane: dict[str, Any] | None = None
    accumulators: list[dict[str, str]] = field(default_factory=list)


def sources(program: Program, variant: Variant = VARIANTS[0]) -> tuple[dict[str, str], Program]:
    """Files below kernels/, and the program with the scratch memory that reductions by many blocks need."""
    made = [_kernel(kernel, variant) for kernel in program.kernels]
    parts = [buffer for item in made for buffer in item["scratch"]]
    buffers = [*program.inputs, *program.outputs, *program.scratch, *parts]
    text = render(
        "cuda/kernels.cu.j2",
        kernels=made,
        variant=variant,
        arguments=[
            f"{'const ' if b in program.inputs else ''}{CTYPES[b.dtype]}* __restrict__ {b.name}" for b in buffers
        ],
        products=any(isinstance(kernel, ProductKernel) for kernel in program.kernels),
        small=max(buffer.size for buffer in buffers) < SMALL,
    )
    return {FILE: text}, replace(program, scratch=(*program.scratch, *parts))


def _kernel(kernel: RowKernel | ProductKernel, variant: Variant) -> dict[str, Any]:
    if isinstance(kernel, ProductKernel):
        return _product(kernel)
    return _Emitter(kernel, variant).view()


def _product(kernel: ProductKernel) -> dict[str, Any]:
    """Arguments of cublasSgemmStridedBatched, which sees every matrix transposed."""
    (left, left_at), (right, right_at), (out, _) = kernel.left, kernel.right, kernel.out
    batch = [atom for atom in kernel.batch if atom.size > 1]
    for outer, inner in pairwise(batch):
        if any(a.coefficient(outer) != a.coefficient(inner) * inner.size for a in (left_at, right_at)):
            raise Unsupported("a matrix product whose batch axes do not lie one after the other")
    sides = []
    for address, row, col in ((right_at, kernel.k, kernel.n), (left_at, kernel.m, kernel.k)):
        by_row, by_col = address.coefficient(row), address.coefficient(col)
        if by_col != 1 and by_row != 1 and col.size > 1:
            raise Unsupported("a product of a matrix without contiguous rows or columns")
        plain = by_col == 1 or col.size == 1
        sides.append({"op": "CUBLAS_OP_N" if plain else "CUBLAS_OP_T", "lead": max(by_row if plain else by_col, 1)})
    step = [address.coefficient(batch[-1]) if batch else 0 for address in (right_at, left_at)]
    return {
        "kind": "product", "name": kernel.name, "m": kernel.m.size, "n": kernel.n.size, "k": kernel.k.size,
        "batches": total(batch), "left": f"{left.name} + {left_at.const}", "right": f"{right.name} + {right_at.const}",
        "out": out.name, "right_side": sides[0], "left_side": sides[1], "right_step": step[0], "left_step": step[1],
        "scratch": [],
    }  # fmt: skip


class _Emitter:
    """The text of one row kernel: one of the kinds pointwise, rows, tiles (lanes are rows), each perhaps split."""

    def __init__(self, kernel: RowKernel, variant: Variant) -> None:
        self.kernel = kernel
        loops.merge_loops(kernel)
        self.pointwise = not kernel.passes
        loops.pointwise_to_pass(kernel)
        self.lanes = loops.choose_lanes(kernel)
        self.lane: Atom | None = self.lanes.row
        self.in_rows = self.lanes.row is not None
        self.vector = variant.vector if self._can_vector() else 1
        self.used: dict[str, tuple[Buffer, bool]] = {}
        self.scratch: list[Buffer] = []

    def view(self) -> dict[str, Any]:
        kernel = self.kernel
        rows = [atom for atom in kernel.rows if atom is not self.lanes.row]
        steps = self._steps()
        cols = [total(item.cols) for item in kernel.passes]
        kind = "pointwise" if self.pointwise else "tiles" if self.in_rows else "rows"
        if self.pointwise:
            item = kernel.passes[0] if kernel.passes else None
            lane = self.lanes.cols[0] if item else None
            rows = [*rows, *([a for a in item.cols if a is not lane] if item else [])]
        if kernel.split:
            self._split_scratch()
        return {
            "kind": kind,
            "name": kernel.name,
            "split": kernel.split,
            "rows": total(rows),
            "decode": _decode(rows),
            "steps": steps,
            "vector": self.vector,
            "lane": _loop_view(self.lanes.row) if self.lanes.row else None,
            "warp": bool(cols) and max(cols) <= WARP_COLS,
            "chunks": self._chunks(),
            "parameters": [
                f"{'' if written else 'const '}{CTYPES[b.dtype]}* __restrict__ {name}"
                for name, (b, written) in self.used.items()
            ],
            "arguments": list(self.used),
            "scratch": self.scratch,
            "part_parameters": [f"float* __restrict__ {buffer.name}" for buffer in self.scratch],
            "part_arguments": [buffer.name for buffer in self.scratch],
        }

    def _split_scratch(self) -> None:
        kernel = self.kernel
        for accumulate in (a for item in kernel.passes for a in item.accumulates):
            name = f"{kernel.name}_{accumulate.ref.name}"
            self.scratch.append(Buffer(name, "float32", total(kernel.rows) * self._chunks()))

    def _chunks(self) -> int:
        """Workers that share one row of a split reduction."""
        if not self.kernel.split:
            return 1
        largest = max(total(item.cols) for item in self.kernel.passes)
        return max(1, min(1024, -(-largest // (ROW_CHUNK if self.in_rows else SPLIT_CHUNK))))

    def _can_vector(self) -> bool:
        """Whether four neighbours along the lanes can be read and written at once, everywhere."""
        if self.in_rows or not self.kernel.passes:
            return False
        for item, lane in zip(self.kernel.passes, self.lanes.cols, strict=True):
            if lane is None or lane.size % VECTOR:
                return False
            places = [(s.buffer, s.address) for s in item.statements if s.buffer and s.address]
            places += [(store.buffer, store.address) for store in item.stores]
            for buffer, address in places:
                if address.coefficient(lane) != 1:
                    continue
                others = [c for atom, c in address.terms if atom is not lane] + [address.const]
                if buffer.dtype == "float32" and any(c % VECTOR for c in others):
                    return False
        return True

    # --- steps -------------------------------------------------------------------------------------------------------

    def _steps(self) -> list[dict[str, Any]]:
        kernel = self.kernel
        steps: list[dict[str, Any]] = []
        last = max([*kernel.row_statements, *(item.level + 1 for item in kernel.passes), 0])
        for level in range(last + 1):
            self.lane = self.lanes.row
            lines = self._scalars(kernel.row_statements.get(level, []))
            stores = [self._store(store, "") for store in kernel.stores] if level == last else []
            if lines or stores:
                steps.append({"kind": "row", "level": level, "lines": lines, "stores": stores})
            for item, lane in zip(kernel.passes, self.lanes.cols, strict=True):
                if item.level == level:
                    steps.append({"kind": "pass", "level": level, "body": self._pass(item, lane)})
        return steps

    def _pass(self, item: Pass, lane: Atom | None) -> _Body:
        self.lane = self.lanes.row or lane
        body = _Body(cols=[_loop_view(atom) for atom in item.cols if atom is not lane])
        if lane is not None:
            body.lane = _loop_view(lane)
        for statement in item.statements:
            self._placed(statement, body)
        for accumulate in item.accumulates:
            self._accumulated(accumulate, body)
        for store in item.stores:
            self._stored(store, body)
        return body

    def _placed(self, statement: Statement, body: _Body) -> None:
        if self.vector > 1 and self._wide(statement.buffer, statement.address, statement.op):
            assert statement.buffer is not None and statement.address is not None
            name = self._use(statement.buffer)
            ref = statement.ref.name
            body.before.append(f"const float4 {ref}_ = load4({name} + {self._address(statement.address)});")
            body.each.append(f"const float {ref} = reinterpret_cast<const float*>(&{ref}_)[e];")
        else:
            body.each += self._scalars([statement])

    def _wide(self, buffer: Buffer | None, address: Affine | None, op: str) -> bool:
        if buffer is None or address is None or op or buffer.dtype != "float32" or self.lane is None:
            return False
        chosen = any(isinstance(atom, Chosen) and self.lane in atom.deps for atom, _ in address.terms)
        return address.coefficient(self.lane) == 1 and not chosen

    def _accumulated(self, accumulate: Accumulate, body: _Body) -> None:
        op, name = COMBINE[accumulate.op], accumulate.ref.name
        body.each.append(f"{name}_ = {op}::join({name}_, {self._name(accumulate.arg)});")
        body.accumulators.append(
            {"ref": name, "op": op, "identity": _number(IDENTITY[accumulate.op]), "parts": f"{self.kernel.name}_{name}"}
        )

    def _stored(self, store: Store, body: _Body) -> None:
        if self.vector > 1 and self._wide(store.buffer, store.address, ""):
            name = self._use(store.buffer, written=True)
            held = f"to{len(body.after)}_"
            body.before.append(f"float4 {held};")
            body.each.append(f"reinterpret_cast<float*>(&{held})[e] = {self._name(store.ref)};")
            body.after.append(f"store4({name} + {self._address(store.address)}, {held});")
        else:
            body.each.append(self._store(store, " + e" if self.vector > 1 else ""))

    # --- lines -------------------------------------------------------------------------------------------------------

    def _scalars(self, statements: list[Statement]) -> list[str]:
        return [f"const {_ctype(s)} {s.ref.name} = {self._value(s)};" for s in statements]

    def _name(self, ref: Ref) -> str:
        return _number(ref.literal) if ref.literal is not None else ref.name

    def _use(self, buffer: Buffer, written: bool = False) -> str:
        self.used[buffer.name] = (buffer, written or self.used.get(buffer.name, (buffer, False))[1])
        return buffer.name

    def _address(self, address: Affine, element: str = "") -> str:
        """Element offset; `element` is what is added to the lane's variable inside a vector."""
        terms = [(self._loop(atom, element), c) for atom, c in address.terms]
        parts = [name if c == 1 else f"{name} * {c}" for name, c in sorted(terms, key=lambda t: (-t[1], t[0]))]
        if address.const or not parts:
            parts.append(str(address.const))
        return " + ".join(parts)

    def _loop(self, atom: Atom, element: str) -> str:
        if atom is not self.lane:
            return atom.name
        return f"(j{element})" if element else "j"

    def _value(self, statement: Statement) -> str:
        element = " + e" if self.vector > 1 and self.lane is not None else ""
        if statement.kind == "op":
            return self._op(statement)
        assert statement.address is not None
        at = self._address(statement.address, element)
        if statement.kind == "iota":
            return f"float({at})"
        assert statement.buffer is not None
        name = self._use(statement.buffer)
        if statement.op.startswith("wrap"):
            return f"wrapped({name}[{at}], {statement.op.split()[1]})"
        if statement.buffer.dtype == "float32":
            return f"__ldg({name} + {at})"
        return f"{name}[{at}]" if statement.buffer.dtype == "bool" else f"float({name}[{at}])"

    def _op(self, statement: Statement) -> str:
        op, names = statement.op, [self._name(arg) for arg in statement.args]
        match op:
            case "where":
                return f"{names[0]} ? {names[1]} : {names[2]}"
            case "to_float":
                return f"({names[0]} ? 1.0f : 0.0f)" if statement.args[0].type == "bool" else names[0]
            case "neg":
                return f"-{names[0]}"
            case "not":
                return f"!{names[0]}"
            case "isnan":
                return f"isnan({names[0]})"
            case "xor":
                return f"{names[0]} != {names[1]}"
        if op in INFIX:
            return f" {INFIX[op]} ".join(names)
        return f"{CALLS[op]}({', '.join(names)})"

    def _store(self, store: Store, element: str) -> str:
        name = self._use(store.buffer, written=True)
        return f"{name}[{self._address(store.address, element)}] = {self._name(store.ref)};"


def _number(value: float) -> str:
    if value != value:
        return "CUDART_NAN_F"
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}CUDART_INF_F"
    text = number(value)
    return f"({text})" if text.startswith("-") else text


def _ctype(statement: Statement) -> str:
    if statement.op.startswith("wrap"):
        return "I"
    return "bool" if statement.ref.type == "bool" else "float"


def _loop_view(atom: Atom) -> dict[str, Any]:
    return {"name": atom.name, "size": atom.size}


def _decode(rows: list[Atom]) -> list[str]:
    """Loop variables from the running number of the row."""
    lines = []
    for position, atom in enumerate(rows):
        below = total(rows[position + 1 :])
        value = "row" if below == 1 else f"row / {below}"
        if position:
            value = f"row % {atom.size}" if below == 1 else f"({value}) % {atom.size}"
        lines.append(f"const I {atom.name} = {value};")
    return lines
