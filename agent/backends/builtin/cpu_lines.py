"""Lines of C++ for target cpu: one for each statement of a kernel, on vectors or on values of a row."""

from typing import Final

from agent.backends.builtin.affine import Affine, Atom, Chosen, total
from agent.backends.builtin.c_names import CALLS, CTYPES, FLOATS, INFIX
from agent.backends.builtin.ir import Unsupported
from agent.backends.builtin.kernels import Buffer, Ref, RowKernel, Statement, Store
from agent.backends.builtin.loops import statements_of
from agent.backends.builtin.text import number

ALONE_BELOW: Final = 1 << 13  # elements: one thread is done before others have woken up
STREAM_FROM: Final = 1 << 18  # elements of an output that will not fit into the nearer caches anyway


class Lines:
    """The text of one kernel's statements. `lane` is the loop whose steps are lanes: of the columns, or, with
    `in_rows`, of the rows. `used` are the tensors met so far, and whether they are written.
    """

    def __init__(self, kernel: RowKernel) -> None:
        self.kernel = kernel
        self.lane: Atom | None = None
        self.in_rows = False
        self.used: dict[str, tuple[Buffer, bool]] = {}
        self.made = {statement.ref: statement for statement in statements_of(kernel)}

    def parameters(self) -> list[str]:
        """Of a function that does what was turned into text so far."""
        return [
            f"{'' if written else 'const '}{CTYPES[buffer.dtype]}* __restrict__ {name}"
            for name, (buffer, written) in self.used.items()
        ]

    def lines(self, statements: list[Statement], *, suffix: str = "") -> list[str]:
        return [line for statement in statements for line in self._line(statement, suffix)]

    def _line(self, statement: Statement, suffix: str) -> list[str]:
        ref = statement.ref
        if statement.op.startswith("wrap"):
            return self._chosen(statement, suffix)
        text = {"load": self._load, "iota": self._iota, "op": self._op, "fetch": self._fetch}[statement.kind](statement)
        kind = "M" if ref.type == "bool" else "V"
        return [f"{ref.name}{suffix} = {text};" if suffix else f"const {kind} {ref.name} = {text};"]

    def _name(self, ref: Ref) -> str:
        """Values of the row are arrays over the vectors of a tile where the lanes are rows."""
        if ref.literal is not None:
            return number(ref.literal)
        of_row = self.in_rows and ref.deps <= set(self.kernel.rows)
        return f"{ref.name}[u]" if of_row else ref.name

    def _vector(self, ref: Ref) -> str:
        return f"splat({number(ref.literal)})" if ref.literal is not None else self._name(ref)

    def _by_lane(self, ref: Ref) -> bool:
        return self.lane is not None and self.lane in ref.deps

    def use(self, buffer: Buffer, written: bool = False) -> str:
        self.used[buffer.name] = (buffer, written or self.used.get(buffer.name, (buffer, False))[1])
        return buffer.name

    def address(self, address: Affine) -> str:
        """Element offset; the lane's own variable counts in it."""
        terms = [(self._loop(atom), c) for atom, c in address.terms if not self._lane_chosen(atom)]
        parts = [name if c == 1 else f"{name} * {c}" for name, c in sorted(terms, key=lambda t: (-t[1], t[0]))]
        if address.const or not parts:
            parts.append(str(address.const))
        return " + ".join(parts)

    def _loop(self, atom: Atom) -> str:
        if isinstance(atom, Chosen):
            return f"{atom.name}[u]" if self.in_rows and atom.deps <= set(self.kernel.rows) else atom.name
        return "j" if atom is self.lane else atom.name

    def _lane_chosen(self, atom: Atom) -> bool:
        return isinstance(atom, Chosen) and self.lane is not None and self.lane in atom.deps

    def _stash(self, address: Affine) -> str:
        if self.in_rows:
            return f"(({self.address(address)}) * UNROLL + u) * W"
        return self.address(address)

    def _load(self, statement: Statement) -> str:
        assert statement.buffer is not None and statement.address is not None
        buffer, address = statement.buffer, statement.address
        name = self.use(buffer)
        stride = address.coefficient(self.lane) if self.lane is not None else 0
        place = f"{name} + {self.address(address)}"
        chosen = [(atom, c) for atom, c in address.terms if self._lane_chosen(atom)]
        if chosen:
            if buffer.dtype not in FLOATS or len(chosen) > 1:
                raise Unsupported("a gather of integers")
            return f"gather_at<PART>({place}, {stride}, {chosen[0][0].name}, {chosen[0][1]}, n)"
        if buffer.dtype in FLOATS:
            if stride == 0:
                return f"splat(value({name}[{self.address(address)}]))"
            return f"load<PART>({place}, n)" if stride == 1 else f"gather<PART>({place}, {stride}, n)"
        if buffer.dtype == "bool":
            if stride == 0:
                return f"{name}[{self.address(address)}] ? yes() : M{{}}"
            return f"load_mask<PART>({place}, {stride}, n)"
        if stride == 0:
            return f"splat(float({name}[{self.address(address)}]))"
        return f"load_int<PART>({place}, {stride}, n)"

    def _chosen(self, statement: Statement, suffix: str) -> list[str]:
        assert statement.buffer is not None and statement.address is not None
        size, name = int(statement.op.split()[1]), self.use(statement.buffer)
        ref = statement.ref
        if not self._by_lane(ref):
            place = f"wrapped({name} + {self.address(statement.address)}, {size})"
            return [f"{ref.name}{suffix} = {place};" if suffix else f"const int64_t {ref.name} = {place};"]
        if suffix or self.in_rows:
            raise Unsupported("a gather whose index varies with the rows of a reduction over an outer axis")
        stride = statement.address.coefficient(self.lane) if self.lane is not None else 0
        place = f"{name} + {self.address(statement.address)} + l * {stride}"
        return [
            f"int64_t {ref.name}[W];",
            f"for (int l = 0; l < (PART ? n : W); ++l) {ref.name}[l] = wrapped({place}, {size});",
        ]

    def _iota(self, statement: Statement) -> str:
        assert statement.address is not None
        step = statement.address.coefficient(self.lane) if self.lane is not None else 0
        base = f"splat(float({self.address(statement.address)}))"
        return f"{base} + lanes() * {number(step)}" if step else base

    def _fetch(self, statement: Statement) -> str:
        assert statement.address is not None
        return f"load<PART>({statement.op} + {self._stash(statement.address)}, n)"

    def _op(self, statement: Statement) -> str:
        op, args = statement.op, statement.args
        if op in ("max", "min"):
            return self._extreme(op, args)
        names = [self._name(arg) for arg in args]
        vectors = [self._vector(arg) for arg in args]
        if op == "where":
            if statement.ref.type == "bool":
                return f"({names[0]} & {names[1]}) | (~{names[0]} & {names[2]})"
            return f"select({', '.join(vectors)})"
        if op == "to_float":
            return f"select({names[0]}, splat(1.0f), V{{}})" if args[0].type == "bool" else vectors[0]
        if op == "neg":
            return f"-{names[0]}"
        if op == "not":
            return f"~{names[0]}"
        if op == "isnan":
            return f"{names[0]} != {names[0]}"
        if op in INFIX:
            # A scalar literal beside a vector is spread by the compiler; two literals are a scalar.
            if all(arg.literal is not None for arg in args):
                names = vectors
            text = f" {INFIX[op]} ".join(names)
            return f"(M)({text})" if op in ("lt", "le", "gt", "ge", "eq", "ne") else text
        if op == "log1p" and self._is(args[0], "exp", "neg", "abs"):
            return f"vlog1p_unit({vectors[0]})"
        return f"{CALLS[op]}({', '.join(vectors)})"

    def _is(self, ref: Ref, *ops: str) -> bool:
        """Whether the value is made by these operations of one operand, the last one first."""
        for op in ops:
            statement = self.made.get(ref)
            if statement is None or statement.op != op or len(statement.args) != 1:
                return False
            ref = statement.args[0]
        return True

    def _extreme(self, op: str, args: tuple[Ref, ...]) -> str:
        bound = {"max": "above", "min": "below"}[op]
        for one, other in (args, args[::-1]):
            if one.literal is not None:
                return f"{bound}({self._vector(one)}, {self._vector(other)})"
        return f"v{op}({self._vector(args[0])}, {self._vector(args[1])})"

    def store_line(self, store: Store, lane: Atom | None) -> str:
        name = self.use(store.buffer, written=True)
        address, vector = store.address, self._vector(store.ref)
        if store.ref.type == "bool" and store.ref.literal is None:
            stride = address.coefficient(self.lane) if self.lane is not None else 0
            if stride == 0:
                return f"{name}[{self.address(address)}] = {vector}[0] != 0;"
            return f"store_mask<PART>({name} + {self.address(address)}, {stride}, {vector}, n);"
        stride = address.coefficient(self.lane) if self.lane is not None else 0
        if stride == 0:
            return f"put({name} + {self.address(address)}, ({vector})[0]);"
        if stride != 1:
            return f"scatter<PART>({name} + {self.address(address)}, {stride}, {vector}, n);"
        return f"store<PART, {self._streams(store)}>({name} + {self.address(address)}, {vector}, n);"

    def _streams(self, store: Store) -> str:
        """Streaming stores need whole, aligned lines, so every other loop has to step by lines."""
        others = [c for atom, c in store.address.terms if atom is not self.lane]
        aligned = all(c % 16 == 0 for c in (*others, store.address.const))
        if self.in_rows and self.lane is not None:
            aligned = aligned and self.lane.size % 64 == 0
        wanted = store.buffer.size >= STREAM_FROM and store.buffer.name.startswith("out")
        return "STREAM" if aligned and wanted else "false"


def decode_lines(rows: list[Atom]) -> list[str]:
    """Loop variables from the running number of the row."""
    lines = []
    for position, atom in enumerate(rows):
        below = total(rows[position + 1 :])
        value = "row" if below == 1 else f"row / {below}"
        if position:
            value = f"row % {atom.size}" if below == 1 else f"({value}) % {atom.size}"
        lines.append(f"const int64_t {atom.name} = {value};")
    return lines
