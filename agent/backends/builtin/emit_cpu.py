"""C++ for target cpu: row kernels as OpenMP loops over vectors, one function for the whole forward."""

from dataclasses import dataclass, field
from typing import Any, Final

from agent.backends.builtin import loops
from agent.backends.builtin.affine import Atom, total
from agent.backends.builtin.c_names import COMBINE, CTYPES, IDENTITY
from agent.backends.builtin.cpu_lines import ALONE_BELOW, Lines, decode_lines
from agent.backends.builtin.cpu_product import product_view
from agent.backends.builtin.cpu_turned import turned_view
from agent.backends.builtin.epilogue import Fused, fused
from agent.backends.builtin.kernels import Buffer, Kernel, Pass, Program, RowKernel, Statement
from agent.backends.builtin.loops import Lanes
from agent.backends.builtin.schedule import Machine
from agent.backends.builtin.text import number, render

LANE_BLOCK: Final = 1 << 14
CHUNK: Final = 1 << 15  # elements of a row that one worker sums up
ROW_CHUNKS: Final = 32
TILE: Final = 64
FEW_TILES: Final = 4
LONG_SUM: Final = 4096
BLOCK_ROWS: Final = 64
TABLES: Final = {
    "log": (0.3333390951, -0.2500133813, 0.1996306330, -0.1657758504, 0.1491476893, -0.1426748633, 0.0870043039),
    "tanh_p": (1.0, 0.136808619, 0.00386951515, 2.80314334e-05, 3.06428021e-08, -1.22464124e-11),
    "tanh_q": (1.0, 0.470141947, 0.0272501837, 0.000394072558, 1.28904378e-06),
    "erf_p": (1.12837911, 0.190404817, 0.0527484082, 0.00376551505, 0.000284875161, 2.05003312e-06),
    "erf_q": (1.0, 0.502074599, 0.114108339, 0.0149690229, 0.00116250059, 3.80907550e-05),
}


@dataclass(frozen=True)
class Variant:
    """What is tried: vectors a step, and stores that go past the caches."""

    unroll: int = 4
    stream: bool = True

    @property
    def words(self) -> str:
        return f"{self.unroll} vectors a step, {'streaming' if self.stream else 'ordinary'} stores"

    @property
    def settings(self) -> tuple[str, ...]:
        """The lines of the source in which variants differ."""
        stream = "true" if self.stream else "false"
        return (f"constexpr int UNROLL = {self.unroll};\n", f"constexpr bool STREAM = {stream};\n")


FILE: Final = "kernels/fused.cpp"
MACHINE: Final = Machine()
VARIANTS: Final = (Variant(4, True), Variant(2, True), Variant(4, False), Variant(1, True))


@dataclass
class _Step:
    """One part of a row's work, as the template prints it."""

    kind: str
    level: int
    lines: list[str] = field(default_factory=list)
    declared: list[tuple[str, str]] = field(default_factory=list)
    cols: list[dict[str, Any]] = field(default_factory=list)
    hoisted: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    lane: dict[str, Any] | None = None
    accumulators: list[dict[str, str]] = field(default_factory=list)
    chunk: int = 0
    chunks: int = 1
    bound: int = 0


def sources(program: Program, variant: Variant = VARIANTS[0]) -> tuple[dict[str, str], Program]:
    """Files below kernels/, and the program with what its kernels still need between them. Raises Unsupported."""
    kernels, program = fused(program)
    views = [_view(kernel) for kernel in kernels]
    products = any(view["product"] for view in views)
    arguments = [*program.inputs, *program.outputs, *program.scratch]
    text = render(
        "cpu/kernels.cpp.j2",
        kernels=views,
        variant=variant,
        arguments=[_parameter(buffer, program) for buffer in arguments],
        products=products,
    )
    headers = {"kernels/simd.h": render("cpu/simd.h.j2", **TABLES)}
    if products:
        headers["kernels/products.h"] = render("cpu/products.h.j2")
    return {**headers, FILE: text}, program


def _view(kernel: Kernel | Fused) -> dict[str, Any]:
    if isinstance(kernel, RowKernel):
        return turned_view(kernel) or _Emitter(kernel).view()
    return product_view(kernel)


def _parameter(buffer: Buffer, program: Program) -> str:
    const = "const " if buffer in program.inputs else ""
    return f"{const}{CTYPES[buffer.dtype]}* __restrict__ {buffer.name}"


class _Emitter(Lines):
    """The text of one row kernel."""

    def __init__(self, kernel: RowKernel) -> None:
        super().__init__(kernel)
        loops.merge_loops(kernel)
        self.pointwise = not kernel.passes
        loops.pointwise_to_pass(kernel)
        self.lanes: Lanes = loops.choose_lanes(kernel)
        self.in_rows = self.lanes.row is not None
        self.lane = self.lanes.row
        self.split = self._must_split()

    def view(self) -> dict[str, Any]:
        kernel = self.kernel
        steps = self._steps()
        rows = [atom for atom in kernel.rows if atom is not self.lanes.row]
        return {
            "product": False,
            "turned": False,
            "name": kernel.name,
            "parameters": self.parameters(),
            "arguments": list(self.used),
            "rows": total(rows),
            "decode": decode_lines(rows),
            "steps": steps,
            "stashes": [stash.name for item in kernel.passes for stash in item.stashes],
            "stash_size": kernel.stash_size,
            "in_rows": self.in_rows,
            "lane": {"name": self.lanes.row.name, "size": self.lanes.row.size} if self.lanes.row else None,
            "split": self.split,
            "alone": "" if self._work() >= ALONE_BELOW else " if (false)",
            **self._blocks(),
        }

    def _work(self) -> int:
        """Elements that the kernel goes through."""
        return total(self.kernel.rows) * max(1, sum(total(item.cols) for item in self.kernel.passes))

    def _blocks(self) -> dict[str, int]:
        """How many parts a long lane loop is cut into; 0: none, the rows are enough."""
        lane = self.lanes.cols[0] if self.pointwise and self.kernel.passes else None
        if lane is None or self.in_rows or total(self.kernel.rows) >= BLOCK_ROWS or lane.size < 2 * LANE_BLOCK:
            return {"blocks": 0, "block": 0, "block_end": 0}
        outer = [atom for atom in self.kernel.passes[0].cols if atom is not lane]
        if outer:
            return {"blocks": 0, "block": 0, "block_end": 0}
        return {"blocks": -(-lane.size // LANE_BLOCK), "block": LANE_BLOCK, "block_end": lane.size}

    def _must_split(self) -> bool:
        """Few rows, or few tiles of rows, or sums so long that they lose digits, where the lanes are rows and nothing
        but one level is reduced.
        """
        kernel, lane = self.kernel, self.lanes.row
        if kernel.split or lane is None or any(item.level or item.stores for item in kernel.passes):
            return kernel.split
        tiles = total(kernel.rows) // lane.size * -(-lane.size // TILE)
        return tiles < FEW_TILES or max(total(item.cols) for item in kernel.passes) > LONG_SUM

    def _chunk(self, step: _Step) -> None:
        """A worker's share of a row: a range of the outermost loop."""
        first = step.cols[0] if step.cols else step.lane
        assert first is not None
        inside = total_sizes(step.cols[1:]) * (step.lane["size"] if step.lane and step.cols else 1)
        wanted = max(1, CHUNK // inside)
        if self.in_rows:
            wanted = max(1, -(-first["size"] // ROW_CHUNKS))
        if not step.cols:
            wanted = -(-wanted // 64) * 64
        step.chunk, step.bound = wanted, first["size"]
        step.chunks = -(-first["size"] // wanted)

    def _steps(self) -> list[_Step]:
        kernel = self.kernel
        steps: list[_Step] = []
        passes = list(zip(kernel.passes, self.lanes.cols, strict=True))
        last = max([*kernel.row_statements, *(item.level + 1 for item in kernel.passes), 0])
        for level in range(last + 1):
            self.lane = self.lanes.row
            statements = kernel.row_statements.get(level, [])
            lines = self.lines(statements, suffix="[u]" if self.in_rows else "")
            if level == last:
                lines += [self.store_line(store, None) for store in kernel.stores]
            if lines:
                steps.append(_Step("row", level, lines, [(_ctype(s), s.ref.name) for s in statements]))
            steps += [self._pass(item, lane) for item, lane in passes if item.level == level]
        return steps

    def _pass(self, item: Pass, lane: Atom | None) -> _Step:
        self.lane = self.lanes.row or lane
        outer = [atom for atom in item.cols if atom is not lane]
        hoisted = [] if self.in_rows else [s for s in item.statements if not self._by_lane(s.ref)]
        inner = [s for s in item.statements if s not in hoisted]
        step = _Step("pass", item.level, cols=[{"name": atom.name, "size": atom.size} for atom in outer])
        step.hoisted = self.lines(hoisted)
        step.body = self.lines(inner)
        step.body += [
            f"store<PART, false>({stash.name} + {self._stash(stash.address)}, {self._name(stash.ref)}, n);"
            for stash in item.stashes
        ]
        for accumulate in item.accumulates:
            value = self._vector(accumulate.arg)
            neutral = number(IDENTITY[accumulate.op])
            if not self.in_rows:
                value = f"PART ? select(first(n), {value}, splat({neutral})) : {value}"
            name = f"{accumulate.ref.name}_"
            step.body.append(f"{name}[u] = {COMBINE[accumulate.op]}({name}[u], {value});")
            step.accumulators.append(
                {"name": name, "ref": accumulate.ref.name, "identity": neutral, "op": accumulate.op,
                 "combine": COMBINE[accumulate.op]}
            )  # fmt: skip
        step.body += [self.store_line(store, lane) for store in item.stores]
        if lane is not None and not self.in_rows:
            step.lane = {"name": lane.name, "size": lane.size}
        if self.split:
            self._chunk(step)
        return step


def _ctype(statement: Statement) -> str:
    if statement.op.startswith("wrap"):
        return "int64_t"
    return "M" if statement.ref.type == "bool" else "V"


def total_sizes(cols: list[dict[str, Any]]) -> int:
    size = 1
    for col in cols:
        size *= col["size"]
    return size
