"""Triton for target cuda: every kernel as programs over a tile of rows and blocks of columns.

Covers what needs no cuBLAS; matrix products are refused.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from agent.backends.builtin import loops, reuse
from agent.backends.builtin.affine import Affine, Atom, total
from agent.backends.builtin.c_names import IDENTITY
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

MACHINE: Final = Machine(few_rows=64, stash_elements=0)
WHOLE: Final = 1 << 14  # elements of a tile that one program keeps in registers
WHOLE_TILE: Final = 1 << 13  # the same where neighbouring rows lie one beside the other
BLOCK: Final = 1024
TILE: Final = 2048  # elements of a tile of short rows
TILE_ROWS: Final = 64
DEEP: Final = 32
PER_THREAD: Final = 16
WORKERS: Final = 132 * 4  # programs that keep an H200 busy
LEAST_CHUNK: Final = 4096
SMALL: Final = (1 << 31) - (1 << 16)
CALLS: Final = {
    "exp": "tl.exp", "log": "tl.log", "sin": "tl.sin", "cos": "tl.cos", "abs": "tl.abs", "floor": "tl.floor",
    "ceil": "tl.ceil", "sqrt": "tl.sqrt_rn", "log1p": "libdevice.log1p", "expm1": "libdevice.expm1",
    "tanh": "libdevice.tanh", "erf": "libdevice.erf", "round": "libdevice.rint", "trunc": "libdevice.trunc",
}  # fmt: skip
INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
COMBINE: Final = {"sum": "{0} + {1}", "prod": "{0} * {1}", "max": "larger({0}, {1})", "min": "smaller({0}, {1})"}
FOLD: Final = {
    "sum": "tl.sum({0}, axis=1)", "prod": "tl.reduce({0}, 1, times)", "max": "tl.reduce({0}, 1, larger)",
    "min": "tl.reduce({0}, 1, smaller)",
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """What is tried: elements that a thread takes at least."""

    per_thread: int = 8

    @property
    def words(self) -> str:
        return f"{self.per_thread} elements a thread"


VARIANTS: Final = (Variant(8), Variant(4))


def kernels(program: Program, variant: Variant = VARIANTS[0]) -> tuple[list[dict[str, Any]], Program]:
    """What the template prints, and the program with scratch memory for split reductions. Raises Unsupported."""
    made, parts = [], []
    buffers = [*program.inputs, *program.outputs, *program.scratch]
    if any(buffer.size == 0 for buffer in buffers):
        raise Unsupported("a tensor without elements")
    small = max(buffer.size for buffer in buffers) < SMALL
    for kernel in program.kernels:
        if isinstance(kernel, ProductKernel):
            raise Unsupported("a matrix product in Triton")
        emitter = _Emitter(kernel, variant)
        made += [view | {"wide": "" if small else ".to(tl.int64)"} for view in emitter.views()]
        parts += emitter.scratch
    return made, replace(program, scratch=(*program.scratch, *parts))


class _Emitter:
    """Rows of shape [ROWS, 1] and columns of shape [1, COLS] make the indices; values broadcast over both."""

    def __init__(self, kernel: RowKernel, variant: Variant) -> None:
        self.kernel, self.variant = kernel, variant
        loops.merge_loops(kernel)
        self.pointwise = not kernel.passes
        loops.pointwise_to_pass(kernel)
        lanes = loops.choose_lanes(kernel)
        # Neighbouring elements of a tile belong to neighbouring rows where the data lies so.
        self.rows_inside = lanes.row is not None and not self.pointwise
        if lanes.row is not None:
            kernel.rows.remove(lanes.row)
            kernel.rows.append(lanes.row)
        self.rows = total(kernel.rows)
        self.columns = max((total(item.cols) for item in kernel.passes), default=1)
        self.split = self._must_split()
        self.tile = self._tile()
        together = not self.split and not self.pointwise and all(self._whole(total(p.cols)) for p in kernel.passes)
        self.shared = reuse.find(kernel) if together else reuse.none(kernel)
        self.used: dict[str, tuple[Buffer, bool]] = {}
        self.scratch: list[Buffer] = []

    def _must_split(self) -> bool:
        """Few rows with many columns, of which nothing but one level is reduced."""
        if self.kernel.split or self.pointwise:
            return self.kernel.split
        if any(item.level or item.stores for item in self.kernel.passes):
            return False
        programs = self.rows // (TILE_ROWS if self.rows_inside else 1)
        return programs < WORKERS // 2 and self.columns >= (DEEP * 8 if self.rows_inside else LEAST_CHUNK * 4)

    def _tile(self) -> int:
        """Rows of a program."""
        if self.rows_inside:
            return min(TILE_ROWS, _power(self.rows))
        return max(1, min(DEEP, _power(self.rows), TILE // _power(self.columns)))

    def _whole(self, cols: int) -> bool:
        """Whether a program takes all columns of its rows at once."""
        return _power(cols) * self.tile <= (WHOLE_TILE if self.rows_inside else WHOLE)

    def _block(self, cols: int) -> int:
        if self._whole(cols) and not self.split:
            return _power(cols)
        return min(DEEP if self.rows_inside else BLOCK * 4, _power(cols))

    def _warps(self, elements: int) -> int:
        """So many that a thread has `per_thread` elements, up to eight warps; beyond that up to 32 values a thread."""
        few = _power(max(1, elements // (32 * self.variant.per_thread)))
        return max(1, min(few, 8), min(32, elements // (32 * PER_THREAD * 2)))

    def views(self) -> list[dict[str, Any]]:
        if self.pointwise:
            return [self._pointwise()]
        if not self.split:
            return [self._view(self.kernel.name, self._steps(), chunks=1)]
        return self._split()

    def _pointwise(self) -> dict[str, Any]:
        item = self.kernel.passes[0] if self.kernel.passes else Pass(0, [])
        every = [*self.kernel.rows, *item.cols]
        lines = self._lines([*self.kernel.row_statements.get(0, []), *item.statements])
        lines += [self._store(store, "live") for store in (*item.stores, *self.kernel.stores)]
        return {
            "kind": "pointwise", "name": self.kernel.name, "all": total(every), "decode": _decode(every, "at"),
            "lines": lines, "block": BLOCK, "warps": self._warps(BLOCK), **self._signature(),
        }  # fmt: skip

    def _signature(self) -> dict[str, Any]:
        return {"parameters": list(self.used)}

    def _view(self, name: str, steps: list[dict[str, Any]], *, chunks: int) -> dict[str, Any]:
        block = max((step["block"] for step in steps if step["kind"] == "pass"), default=1)
        return {
            "kind": "rows", "name": name, "rows": self.rows, "tile": self.tile,
            "decode": _decode(self.kernel.rows, "row"), "steps": steps, "chunks": chunks,
            "warps": self._warps(self.tile * block), **self._signature(),
        }  # fmt: skip

    def _steps(self) -> list[dict[str, Any]]:
        kernel = self.kernel
        steps: list[dict[str, Any]] = []
        last = max([*kernel.row_statements, *(item.level + 1 for item in kernel.passes), 0])
        for level in range(last + 1):
            lines = self._lines(kernel.row_statements.get(level, []))
            if level == last:
                lines += [self._store(store, "inside") for store in kernel.stores]
            if lines:
                steps.append({"kind": "row", "level": level, "lines": lines})
            for number, item in enumerate(kernel.passes):
                if item.level == level:
                    steps.append(self._pass(item, number))
        return steps

    def _pass(self, item: Pass, number: int) -> dict[str, Any]:
        cols = total(item.cols)
        lines = self._lines(self.shared.kept[number])
        folds = []
        for accumulate in item.accumulates:
            lines.append(self._accumulated(accumulate))
            name = accumulate.ref.name
            folds.append({"name": name, "op": accumulate.op, "identity": _number(IDENTITY[accumulate.op]),
                          "fold": FOLD[accumulate.op].format(f"{name}_")})  # fmt: skip
        lines += [self._store(store, "live") for store in item.stores]
        block = self._block(cols)
        return {"kind": "pass", "level": item.level, "cols": cols, "block": block, "whole": block >= cols,
                "chunk": 0, "decode": _decode(item.cols, "col"), "lines": lines, "folds": folds}  # fmt: skip

    def _accumulated(self, accumulate: Accumulate) -> str:
        name, neutral = f"{accumulate.ref.name}_", _number(IDENTITY[accumulate.op])
        value = f"tl.where(live, {self._name(accumulate.arg)}, {neutral})"
        return f"{name} = {COMBINE[accumulate.op].format(name, value)}"

    def _split(self) -> list[dict[str, Any]]:
        """One kernel writes a part for every chunk of columns, a second one joins them."""
        kernel, rows = self.kernel, self.rows
        programs = -(-rows // self.tile)
        least = DEEP * 2 if self.rows_inside else LEAST_CHUNK
        chunks = max(1, min(1024, -(-WORKERS * 2 // programs), -(-self.columns // least)))
        steps = [step for step in self._steps() if step["kind"] == "pass" or step["level"] == 0]
        for step in steps:
            if step["kind"] == "pass":
                share = -(-step["cols"] // chunks)
                # Whole blocks, so that reads stay as wide as they can be.
                step["chunk"], step["whole"] = -(-share // step["block"]) * step["block"], False
        names = [a.ref.name for item in kernel.passes for a in item.accumulates]
        stores = []
        for name in names:
            buffer = Buffer(f"{kernel.name}_{name}", "float32", rows * chunks)
            self.scratch.append(buffer)
            self._use(buffer, written=True)
            stores.append(f"tl.store({buffer.name} + chunk * {rows} + row, {name}, inside)")
        steps.append({"kind": "row", "level": 1, "lines": stores})
        first = self._view(f"{kernel.name}_parts", steps, chunks=chunks)
        self.used = {}
        joins: list[dict[str, Any]] = []
        for accumulate in (a for item in kernel.passes for a in item.accumulates):
            name, part = accumulate.ref.name, self._use(self.scratch[len(joins)])
            neutral = _number(IDENTITY[accumulate.op])
            lines = [f"{name}_ = tl.load({part} + col * {rows} + row, live, {neutral})"]
            joins.append({"kind": "pass", "level": 0, "cols": chunks, "block": _power(chunks), "whole": True,
                          "chunk": 0, "decode": [], "lines": lines, "folds": [{"name": name, "op": accumulate.op,
                          "identity": neutral, "fold": FOLD[accumulate.op].format(f"{name}_")}]})  # fmt: skip
        rest = [step for step in self._steps() if step["kind"] == "row"]
        early = [step for step in rest if step["level"] == 0]
        late = [step for step in rest if step["level"] > 0]
        return [first, self._view(kernel.name, [*early, *joins, *late], chunks=1)]

    # --- lines -------------------------------------------------------------------------------------------------------

    def _lines(self, statements: list[Statement]) -> list[str]:
        return [f"{statement.ref.name} = {self._value(statement)}" for statement in statements]

    def _name(self, ref: Ref) -> str:
        return _number(ref.literal) if ref.literal is not None else self.shared.same.get(ref, ref).name

    def _use(self, buffer: Buffer, written: bool = False) -> str:
        self.used[buffer.name] = (buffer, written or self.used.get(buffer.name, (buffer, False))[1])
        return buffer.name

    def _address(self, address: Affine) -> str:
        terms = [(atom.name, c) for atom, c in address.terms]
        parts = [name if c == 1 else f"{name} * {c}" for name, c in sorted(terms, key=lambda t: (-t[1], t[0]))]
        if address.const or not parts:
            parts.append(str(address.const))
        return " + ".join(parts)

    def _mask(self, ref: Ref) -> str:
        if self.pointwise:
            return "live"
        in_cols = any(atom not in self.kernel.rows for atom in ref.deps)
        return "live" if in_cols else "inside"

    def _value(self, statement: Statement) -> str:
        if statement.kind == "op":
            return self._op(statement)
        assert statement.address is not None
        at = self._address(statement.address)
        if statement.kind == "iota":
            return f"({at} + 0 * {'at' if self.pointwise else 'row'}).to(tl.float32)"
        assert statement.buffer is not None
        name, mask = self._use(statement.buffer), self._mask(statement.ref)
        scalar = not statement.address.atoms()
        load = f"tl.load({name} + {at})" if scalar else f"tl.load({name} + {at}, {mask}, 0)"
        if statement.op.startswith("wrap"):
            return f"wrapped({load}.to(tl.int64), {statement.op.split()[1]})"
        if statement.buffer.dtype == "bool":
            return f"{load} != 0"
        return load if statement.buffer.dtype == "float32" else f"{load}.to(tl.float32)"

    def _op(self, statement: Statement) -> str:
        op, names = statement.op, [self._name(arg) for arg in statement.args]
        match op:
            case "where":
                return f"tl.where({', '.join(names)})"
            case "to_float":
                return f"{names[0]}.to(tl.float32)"
            case "to_float16" | "to_bfloat16":
                return f"{names[0]}.to(tl.{op.removeprefix('to_')}).to(tl.float32)"
            case "neg":
                return f"-{names[0]}"
            case "not":
                return f"{names[0]} == 0"
            case "isnan":
                return f"{names[0]} != {names[0]}"
            case "recip":
                return f"1.0 / {names[0]}"
            case "rsqrt":
                return f"1.0 / tl.sqrt_rn({names[0]})"
            case "sigmoid":
                return f"1.0 / (1.0 + tl.exp(-{names[0]}))"
            case "relu":
                return f"tl.where({names[0]} < 0.0, 0.0, {names[0]})"
            case "max":
                return f"larger({names[0]}, {names[1]})"
            case "min":
                return f"smaller({names[0]}, {names[1]})"
        if op in INFIX:
            return f" {INFIX[op]} ".join(names)
        return f"{CALLS[op]}({', '.join(names)})"

    def _store(self, store: Store, mask: str) -> str:
        name = self._use(store.buffer, written=True)
        at = self._address(store.address)
        if not store.address.atoms():
            at += " + 0 * " + ("at" if self.pointwise else "row")  # a block, as the value is
        return f"tl.store({name} + {at}, {self._name(store.ref)}, {mask})"


def _number(value: float) -> str:
    if value != value:
        return 'float("nan")'
    if value in (float("inf"), float("-inf")):
        return f'float("{"-" if value < 0 else ""}inf")'
    text = f"{value:.9g}"
    text = text if any(c in text for c in ".e") else f"{text}.0"
    return f"({text})" if value < 0 else text


def _power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _decode(atoms: list[Atom], running: str) -> list[str]:
    """Loop variables from a running number."""
    lines = []
    for position, atom in enumerate(atoms):
        below = total(atoms[position + 1 :])
        value = running if below == 1 else f"{running} // {below}"
        if position:
            value = f"{running} % {atom.size}" if below == 1 else f"({value}) % {atom.size}"
        lines.append(f"{atom.name} = {value}")
    return lines
