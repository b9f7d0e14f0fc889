"""What a kernel is before it becomes text: loops, passes over rows, and statements with affine addresses."""

from dataclasses import dataclass, field
from typing import Literal

from agent.backends.builtin.affine import Affine, Atom
from agent.backends.builtin.ir import Type


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory: an argument of the forward, an output, or scratch between kernels."""

    name: str
    dtype: str
    size: int


@dataclass(eq=False)
class Ref:
    """A computed value: of which type, and on which loops it depends. Literals have `literal` and no statement."""

    name: str
    type: Type
    deps: frozenset[Atom]
    literal: float | None = None


@dataclass(eq=False)
class Statement:
    """One value. load: from `buffer` at `address`; iota: `address` itself; op: of `args`; fetch: from a row's stash."""

    ref: Ref
    kind: Literal["load", "iota", "op", "fetch"]
    op: str = ""
    args: tuple[Ref, ...] = ()
    buffer: Buffer | None = None
    address: Affine | None = None


@dataclass(eq=False)
class Store:
    buffer: Buffer
    address: Affine
    ref: Ref


@dataclass(eq=False)
class Accumulate:
    """A reduction of `arg` over the pass' loops; `ref` is its result, a value of the row."""

    ref: Ref
    op: str
    arg: Ref


@dataclass(eq=False)
class Stash:
    """A value kept in the row's own buffer for later passes."""

    name: str
    ref: Ref
    address: Affine


@dataclass(eq=False)
class Pass:
    """One run over `cols`; level n may use reductions of the passes with lower levels."""

    level: int
    cols: list[Atom]
    statements: list[Statement] = field(default_factory=list)
    accumulates: list[Accumulate] = field(default_factory=list)
    stashes: list[Stash] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)


@dataclass(eq=False)
class RowKernel:
    """For every position of `rows`: statements of level n, passes of level n, statements of level n + 1, and so on.

    `split`: few rows, each of which is reduced by many workers. `stores` are those of row values.
    """

    name: str
    rows: list[Atom]
    passes: list[Pass]
    row_statements: dict[int, list[Statement]]
    stores: list[Store]
    stash_size: int
    split: bool

    def affines(self) -> list[Affine]:
        """Every address and index in the kernel."""
        groups = [self.row_statements[level] for level in sorted(self.row_statements)]
        groups += [item.statements for item in self.passes]
        found = [s.address for group in groups for s in group if s.address is not None]
        found += [stash.address for item in self.passes for stash in item.stashes]
        stores = [*self.stores, *(store for item in self.passes for store in item.stores)]
        return found + [store.address for store in stores]


@dataclass(eq=False)
class ProductKernel:
    """out[batch, m, n] = sum over k of left * right; addresses are affine in the four loops."""

    name: str
    batch: list[Atom]
    m: Atom
    n: Atom
    k: Atom
    left: tuple[Buffer, Affine]
    right: tuple[Buffer, Affine]
    out: tuple[Buffer, Affine]


Kernel = RowKernel | ProductKernel


@dataclass(frozen=True)
class Program:
    """Kernels in order; which buffers they read, write and need between them."""

    kernels: tuple[Kernel, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
