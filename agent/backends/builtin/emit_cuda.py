"""CUDA C++ for target cuda: pointwise kernels, rows by parts of a warp, warps or blocks, reductions of outer axes by
tiles, transposes through shared memory, products through cuBLAS.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from agent.backends.builtin import loops, reuse
from agent.backends.builtin.affine import Affine, Atom, total
from agent.backends.builtin.c_names import CTYPES
from agent.backends.builtin.cuda_lines import Body, Lines, decode
from agent.backends.builtin.ir import Unsupported
from agent.backends.builtin.kernels import Buffer, Pass, ProductKernel, Program, RowKernel
from agent.backends.builtin.schedule import Machine
from agent.backends.builtin.text import render

FILE: Final = "kernels/fused.cu"
MACHINE: Final = Machine(few_rows=64, stash_elements=0)
SMALL: Final = 1 << 30
WARP: Final = 32
MOST_THREADS: Final = 1024
IN_REGISTERS: Final = 36  # values of a row that one thread keeps
IDLE: Final = 0.04
WORKERS: Final = 132 * 4  # blocks that keep an H200 busy
LEAST_CHUNK: Final = 4096  # elements that a block sums up, where several share a row
LEAST_DEEP: Final = 64  # the same, of a tile's columns
TILE: Final = 32  # of a transpose
VECTORS: Final = (8, 4, 2)
BLAS: Final = {"float32": "CUDA_R_32F", "float16": "CUDA_R_16F", "bfloat16": "CUDA_R_16BF"}


@dataclass(frozen=True)
class Variant:
    """What is tried: threads of a block, vectors that a thread reads before it computes (pointwise), how many times as
    many threads share a row as would fill their registers, and stores that leave the caches to others.
    """

    threads: int = 256
    items: int = 2
    spread: int = 1
    stream: bool = True

    @property
    def words(self) -> str:
        stores = "streaming" if self.stream else "ordinary"
        return f"{self.threads} threads, {self.items} vectors a thread, rows spread {self.spread}x, {stores} stores"

    @property
    def settings(self) -> tuple[str, ...]:
        """The lines of the source in which variants differ."""
        return (
            f"constexpr int THREADS = {self.threads};\n",
            f"constexpr int ITEMS = {self.items};\n",
            f"constexpr int SPREAD = {self.spread};\n",
            f"constexpr bool STREAM = {'true' if self.stream else 'false'};\n",
        )


VARIANTS: Final = (Variant(), Variant(256, 4, 2), Variant(128, 1, 1), Variant(256, 2, 1, stream=False))


def sources(program: Program, variant: Variant = VARIANTS[0]) -> tuple[dict[str, str], Program]:
    """Files below kernels/, and the program with the scratch memory that reductions by many blocks need."""
    made = [_kernel(kernel) for kernel in program.kernels]
    parts = [buffer for item in made for buffer in item["scratch"]]
    buffers = [*program.inputs, *program.outputs, *program.scratch, *parts]
    if any(buffer.size == 0 for buffer in buffers):
        raise Unsupported("a tensor without elements")
    text = render(
        "cuda/kernels.cu.j2",
        kernels=made,
        settings="".join(variant.settings).rstrip(),
        arguments=[
            f"{'const ' if b in program.inputs else ''}{CTYPES[b.dtype]}* __restrict__ {b.name}" for b in buffers
        ],
        products=any(isinstance(kernel, ProductKernel) for kernel in program.kernels),
        dtypes={buffer.dtype for buffer in buffers} | _converted(program),
        small=max(buffer.size for buffer in buffers) < SMALL,
    )
    return {FILE: text}, replace(program, scratch=(*program.scratch, *parts))


def _converted(program: Program) -> set[str]:
    """Types that values are rounded to on the way."""
    rows = [kernel for kernel in program.kernels if isinstance(kernel, RowKernel)]
    return {s.op.removeprefix("to_") for kernel in rows for s in loops.statements_of(kernel) if s.kind == "op"}


def _kernel(kernel: RowKernel | ProductKernel) -> dict[str, Any]:
    if isinstance(kernel, ProductKernel):
        return _product(kernel)
    return _Emitter(kernel).view()


def _product(kernel: ProductKernel) -> dict[str, Any]:
    """Arguments of cublasSgemmStridedBatched or, of 16-bit floats, cublasGemmStridedBatchedEx: they see every matrix
    transposed.
    """
    (left, left_at), (right, right_at), (out, _) = kernel.left, kernel.right, kernel.out
    if left.dtype != right.dtype or left.dtype not in BLAS or out.dtype not in (left.dtype, "float32"):
        raise Unsupported(f"a matrix product of {left.dtype} and {right.dtype} tensors")
    batch = [atom for atom in kernel.batch if atom.size > 1]
    for outer, inner in pairwise(batch):
        if any(a.coefficient(outer) != a.coefficient(inner) * inner.size for a in (left_at, right_at)):
            raise Unsupported("a matrix product whose batch axes do not lie one after the other")
    sides = []
    for address, row, col in ((right_at, kernel.k, kernel.n), (left_at, kernel.m, kernel.k)):
        by_row, by_col = address.coefficient(row), address.coefficient(col)
        plain = by_col == 1 or col.size == 1
        if not plain and by_row != 1 and row.size > 1:
            raise Unsupported("a product of a matrix without contiguous rows or columns")
        lead, least = (by_row, col.size) if plain else (by_col, row.size)
        sides.append({"op": "CUBLAS_OP_N" if plain else "CUBLAS_OP_T", "lead": max(lead, least)})
    step = [address.coefficient(batch[-1]) if batch else 0 for address in (right_at, left_at)]
    return {
        "kind": "product", "name": kernel.name, "m": kernel.m.size, "n": kernel.n.size, "k": kernel.k.size,
        "batches": total(batch), "left": f"{left.name} + {left_at.const}", "right": f"{right.name} + {right_at.const}",
        "out": out.name, "right_side": sides[0], "left_side": sides[1], "right_step": step[0], "left_step": step[1],
        "type": CTYPES[left.dtype], "to": CTYPES[out.dtype], "blas": BLAS[left.dtype], "blas_to": BLAS[out.dtype],
        "plain": left.dtype == "float32", "scratch": [],
    }  # fmt: skip


class _Emitter:
    """One row kernel: of which kind it is, how many threads share what, and its text."""

    def __init__(self, kernel: RowKernel) -> None:
        self.kernel = kernel
        loops.merge_loops(kernel)
        self.pointwise = not kernel.passes
        loops.pointwise_to_pass(kernel)
        chosen = loops.choose_lanes(kernel)
        self.row_lane = None if self.pointwise else chosen.row
        self.lanes = [None] * len(kernel.passes) if self.row_lane else self._common_lanes()
        self.vector = self._vector()
        self.scratch: list[Buffer] = []
        self.columns = max((total(item.cols) for item in kernel.passes), default=1)
        self.rows = [atom for atom in kernel.rows if atom is not self.row_lane]
        self.across, self.deep = self._tile()
        self.split = self._must_split()
        self.shared, self.group, self.unrolled = self._in_registers()
        self.text = Lines(kernel, vector=self.vector, row_lane=self.row_lane, shared=self.shared)

    def _common_lanes(self) -> list[Atom | None]:
        """Passes over the same columns go through them in the same way: then they can share registers."""
        found: list[Atom | None] = []
        for item in self.kernel.passes:
            alike = [other for other in self.kernel.passes if other.cols == item.cols]
            scores = {
                atom: sum(loops.lane_score(atom, one.statements, one.stores) for one in alike) for atom in item.cols
            }
            found.append(max(scores, key=lambda atom: scores[atom]) if scores else None)
        return found

    def _vector(self) -> int:
        """How many neighbours along the lanes are read and written at once, everywhere."""
        lanes = [self.row_lane] if self.row_lane else [lane for lane in self.lanes if lane is not None]
        places = self._places()
        halves = any(buffer.dtype in ("float16", "bfloat16") for buffer, _ in places)
        if not lanes or not all(self.row_lane or item.cols for item in self.kernel.passes):
            return 1
        for vector in VECTORS if halves else VECTORS[1:]:
            if all(lane.size % vector == 0 for lane in lanes) and self._aligned(lanes, vector):
                return vector
        return 1

    def _aligned(self, lanes: list[Atom], vector: int) -> bool:
        for _, address in self._places():
            by = [lane for lane in lanes if address.coefficient(lane) == 1]
            rest = [c for atom, c in address.terms if atom not in by]
            if by and any(c % vector for c in (*rest, address.const)):
                return False
        return True

    def _places(self) -> list[tuple[Buffer, Affine]]:
        found = [(s.buffer, s.address) for s in loops.statements_of(self.kernel) if s.buffer and s.address]
        stores = (*self.kernel.stores, *(store for item in self.kernel.passes for store in item.stores))
        return found + [(store.buffer, store.address) for store in stores]

    # --- who does what -----------------------------------------------------------------------------------------------

    def _tile(self) -> tuple[int, int]:
        """Threads along the rows and along the columns, where lanes are rows."""
        if self.row_lane is None:
            return 1, 1
        across = min(WARP, power(-(-self.row_lane.size // self.vector)))
        deep = min(max(256 // across, 1), power(self.columns))
        return across, deep

    def _blocks(self) -> int:
        """Blocks when none share a row."""
        if self.row_lane is None:
            return total(self.rows)
        return total(self.rows) * -(-self.row_lane.size // (self.across * self.vector))

    def _must_split(self) -> bool:
        """Few rows or tiles with many columns, of which nothing but one level is reduced."""
        if self.kernel.split or not self.kernel.passes or self.pointwise:
            return self.kernel.split
        if any(item.level or item.stores for item in self.kernel.passes):
            return False
        least = LEAST_DEEP * 4 if self.row_lane else LEAST_CHUNK * 4
        return self._blocks() < WORKERS // 2 and self.columns >= least

    def chunks(self) -> int:
        """Blocks that share one row of a split reduction."""
        if not self.split:
            return 1
        least = LEAST_DEEP if self.row_lane else LEAST_CHUNK
        # One wave: blocks that begin when others have ended would be alone with the memory.
        wanted = WORKERS * 2 // self._blocks()
        return max(1, min(MOST_THREADS, wanted, -(-self.columns // least)))

    def _in_registers(self) -> tuple[reuse.Reuse, int, bool]:
        """What later passes find in registers, how many threads share a row for that, and whether all of it fits."""
        plain = reuse.none(self.kernel)
        if self.split or self.pointwise:
            return plain, 256, self.pointwise
        shared = reuse.find(self.kernel)
        alive = max(1, shared.most_alive(self.kernel.passes))
        if self.row_lane is not None:
            fits = alive * self.vector * -(-self.columns // self.deep) <= IN_REGISTERS
            return (shared if fits else plain), self.deep, fits
        vectors = -(-self.columns // self.vector)
        steps = IN_REGISTERS // (alive * self.vector)
        group = sharing(vectors, steps) if steps else 0
        return (shared, group, True) if group else (plain, 512, False)

    # --- text --------------------------------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        kernel, text = self.kernel, self.text
        kind = "pointwise" if self.pointwise else "tiles" if self.row_lane else "rows"
        turned = self._turned() if self.pointwise and kernel.passes else None
        self.unrolled = self.unrolled and not turned
        steps = self._steps()
        if self.split:
            self._split_scratch()
        rows = self.rows
        return {
            "kind": "turned" if turned else kind,
            "turned": turned,
            "name": kernel.name,
            "split": self.split,
            "rows": total(rows),
            "decode": decode(rows, "row"),
            "steps": steps,
            "vector": self.vector,
            "unrolled": self.unrolled,
            "lane": self.row_lane.size if self.row_lane else 0,
            "group": self.group,
            "across": self.across,
            "deep": self.deep,
            "chunks": self.chunks(),
            "parameters": [
                f"{'' if written else 'const '}{CTYPES[b.dtype]}* __restrict__ {name}"
                for name, (b, written) in text.used.items()
            ],
            "arguments": list(text.used),
            "scratch": self.scratch,
            "part_parameters": [f"float* __restrict__ {buffer.name}" for buffer in self.scratch],
            "part_arguments": [buffer.name for buffer in self.scratch],
        }

    def _split_scratch(self) -> None:
        size = total(self.kernel.rows) * self.chunks()
        for accumulate in (a for item in self.kernel.passes for a in item.accumulates):
            self.scratch.append(Buffer(f"{self.kernel.name}_{accumulate.ref.name}", "float32", size))

    def _steps(self) -> list[dict[str, Any]]:
        kernel = self.kernel
        steps: list[dict[str, Any]] = []
        last = max([*kernel.row_statements, *(item.level + 1 for item in kernel.passes), 0])
        for level in range(last + 1):
            stores = kernel.stores if level == last else []
            found = self.text.row(kernel.row_statements.get(level, []), stores)
            if found["lines"] or found["stores"]:
                steps.append({"kind": "row", "level": level, **found})
            for number, item in enumerate(kernel.passes):
                if item.level == level:
                    steps.append({"kind": "pass", "level": level, "body": self._body(item, number)})
        return steps

    def _body(self, item: Pass, number: int) -> Body:
        vectors = total(item.cols) if self.row_lane else -(-total(item.cols) // self.vector)
        steps = 2 if self.pointwise else -(-vectors // self.group)
        unrolled = self.unrolled and (self.pointwise or steps * self.vector <= IN_REGISTERS)
        return self.text.body(item, number, self.lanes[number], steps=steps, unrolled=unrolled)

    # --- transposes --------------------------------------------------------------------------------------------------

    def _turned(self) -> dict[str, Any] | None:
        """Where what is read lies along another loop than what is written, a tile of it goes through shared memory."""
        item, lane = self.kernel.passes[0], self.lanes[0]
        if lane is None or lane.size < TILE or self.kernel.row_statements.get(0):
            return None
        every = [*self.kernel.rows, *item.cols]
        loads = [s for s in item.statements if s.kind == "load" and s.buffer and s.buffer.dtype == "float32"]
        for other in every:
            if other is lane or other.size < TILE:
                continue
            far = [
                s for s in loads
                if not s.op and s.address is not None and s.address.coefficient(other) == 1
                and s.address.coefficient(lane) > 1 and s.address.atoms() == {a for a, _ in s.address.terms}
            ]  # fmt: skip
            if far and all(store.address.coefficient(lane) == 1 for store in item.stores):
                return self._through_tiles(lane, other, far, [a for a in every if a not in (lane, other)])
        return None

    def _through_tiles(self, lane: Atom, other: Atom, far: list[Any], rest: list[Atom]) -> dict[str, Any]:
        self.vector = self.text.vector = 1
        self.text.lane = None
        staged = []
        for number, statement in enumerate(far):
            place = self.text._address(statement.address)
            staged.append({"name": f"stage{number}", "from": f"{self.text._use(statement.buffer)} + {place}"})
            self.text.replaced[statement.buffer, statement.address] = f"stage{number}[x][y]"
        return {"lane": {"name": lane.name, "size": lane.size}, "other": {"name": other.name, "size": other.size},
                "rest": total(rest), "decode": decode(rest, "rest"), "staged": staged}  # fmt: skip


def sharing(vectors: int, steps: int) -> int:
    """Threads that share a row, so that each has at most so many steps: a part of a warp, a warp, or warps of which
    hardly a thread is idle; 0 where the row is too long.
    """
    few = min(WARP, power(vectors))
    if -(-vectors // few) <= steps:
        return few
    fit = [n for n in range(2 * WARP, MOST_THREADS + 1, WARP) if -(-vectors // n) <= steps]
    return min(fit, key=lambda n: (-(-vectors // n) * n > vectors * (1 + IDLE), n), default=0)


def power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()
