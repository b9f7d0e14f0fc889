"""Lines of CUDA for the statements of one row kernel: loads as wide as the data allows, values, sums, stores."""

from dataclasses import dataclass, field
from typing import Any, Final

from agent.backends.builtin import reuse
from agent.backends.builtin.affine import Affine, Atom, Chosen, total
from agent.backends.builtin.c_names import CTYPES, FLOATS, IDENTITY, INFIX
from agent.backends.builtin.kernels import Accumulate, Buffer, Pass, Ref, RowKernel, Statement, Store
from agent.backends.builtin.text import number

CALLS: Final = {
    "exp": "expf", "log": "logf", "log1p": "log1pf", "expm1": "expm1f", "sqrt": "sqrtf", "rsqrt": "rsqrtf",
    "sin": "sinf", "cos": "cosf", "tanh": "tanhf", "erf": "erff", "floor": "floorf", "ceil": "ceilf",
    "round": "rintf", "trunc": "truncf", "abs": "fabsf", "recip": "recip", "sigmoid": "sigmoid", "relu": "relu",
    "max": "nan_max", "min": "nan_min",
}  # fmt: skip
COMBINE: Final = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min"}
LEAST_DIVISOR: Final = 1e-30
MOST_AHEAD: Final = 64  # registers for what is read before anything is computed


@dataclass
class Body:
    """One pass: what is read ahead, then per step the lines before, for each of a vector's elements, and after."""

    number: int
    vectors: int  # steps of all threads together
    decode: list[str]
    ahead: list[str] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    each: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    accumulators: list[dict[str, str]] = field(default_factory=list)
    stores: bool = False
    unrolled: bool = False


class Lines:
    """Text of statements; `lane` is the loop of which a thread takes `vector` steps at once (j counts it)."""

    def __init__(self, kernel: RowKernel, *, vector: int, row_lane: Atom | None, shared: reuse.Reuse) -> None:
        self.kernel, self.vector, self.row_lane, self.shared = kernel, vector, row_lane, shared
        self.lane: Atom | None = row_lane
        self.used: dict[str, tuple[Buffer, bool]] = {}
        self.in_registers: dict[Ref, str] = {}
        self.held = shared.held()
        self.replaced: dict[tuple[Buffer, Affine], str] = {}

    # --- parts -------------------------------------------------------------------------------------------------------

    def row(self, statements: list[Statement], stores: list[Store]) -> dict[str, Any]:
        """Values of the row; where lanes are rows, a thread has one for each of its lanes."""
        self.lane = self.row_lane
        found: dict[str, list[str]] = {"lines": [], "stores": []}
        for statement in statements:
            if self._by_lane(statement.ref):
                name = statement.ref.name
                found["lines"] += [
                    f"{_ctype(statement)} {name}[V];",
                    *self._over_lanes(f"{name}[e] = {self._value(statement)};"),
                ]
            else:
                found["lines"].append(self._declared(statement))
        for store in stores:
            found["stores"] += self._row_store(store)
        return found

    def _row_store(self, store: Store) -> list[str]:
        if self.row_lane is None:
            return [self._scalar_store(store)]
        if not self._wide(store.buffer, store.address):
            return self._over_lanes(self._scalar_store(store))
        kind = CTYPES[store.buffer.dtype]
        lines = self._over_lanes(f"out_.v[e] = {self._rounded(store)};")
        place = f"{self._use(store.buffer, written=True)} + {self._address(store.address)}"
        return ["{", f"  Pack<{kind}, V> out_;", *("  " + line for line in lines), f"  put<V>({place}, out_);", "}"]

    def _over_lanes(self, line: str) -> list[str]:
        return ["#pragma unroll", f"for (int e = 0; e < V; ++e) {line}"]

    def body(self, item: Pass, number: int, lane: Atom | None, *, steps: int, unrolled: bool) -> Body:
        self.lane = self.row_lane or lane
        cols = [atom for atom in item.cols if atom is not lane]
        inner = lane.size // self.vector if lane is not None else 1
        body = Body(number, total(cols) * inner, _decode_columns(cols, lane, inner), unrolled=unrolled)
        kept = self.shared.kept[number]
        ahead = self._read_ahead(kept, steps) if unrolled else []
        for ref in self.shared.fetched[number]:
            self._fetched(ref, body)
        for statement in kept:
            self._placed(statement, body, ahead=statement in ahead)
            if statement.ref in self.held and statement.ref not in self.in_registers:
                self._hold(statement, body)
        for accumulate in item.accumulates:
            self._accumulated(accumulate, body)
        for store in item.stores:
            self._stored(store, body)
        return body

    def _read_ahead(self, statements: list[Statement], steps: int) -> list[Statement]:
        """Wide loads of what changes with the row, and so comes from far away."""
        rows = set(self.kernel.rows)
        found = [
            s
            for s in statements
            if s.kind == "load" and not s.op and s.address is not None and s.buffer is not None
            and self._wide(s.buffer, s.address)
            and (not rows or s.address.atoms() & rows or s.ref in self.held)
            and not any(isinstance(atom, Chosen) for atom, _ in s.address.terms)
        ]  # fmt: skip
        most = MOST_AHEAD // max(1, steps * self.vector)
        return found if len(found) <= most else [s for s in found if s.ref in self.held][:most]

    # --- elements ----------------------------------------------------------------------------------------------------

    def _placed(self, statement: Statement, body: Body, *, ahead: bool) -> None:
        ref, buffer, address = statement.ref, statement.buffer, statement.address
        plain = statement.kind == "load" and not statement.op and buffer is not None and address is not None
        if plain and self._wide(buffer, address):
            assert buffer is not None and address is not None
            kind, name = CTYPES[buffer.dtype], f"{ref.name}_w"
            got = f"get<V>({self._use(buffer)} + {self._address(address)})"
            element = f"{name}[s].v[e]" if ahead else f"{name}.v[e]"
            value = element if buffer.dtype == "bool" else f"to_float({element})"
            if ahead:
                body.arrays.append(f"Pack<{kind}, V> {name}[STEPS{body.number}];")
                body.ahead.append(f"{name}[s] = {got};")
                self.in_registers[ref] = value
            else:
                body.before.append(f"const Pack<{kind}, V> {name} = {got};")
            body.each.append(f"const {_ctype(statement)} {ref.name} = {value};")
        elif self._by_lane(ref):
            body.each.append(self._declared(statement))
        else:
            body.before.append(self._declared(statement))

    def _hold(self, statement: Statement, body: Body) -> None:
        ref = statement.ref
        name, lanes = f"{ref.name}_h", self._by_lane(ref)
        body.arrays.append(f"{_ctype(statement)} {name}[STEPS{body.number}{' * V' if lanes else ''}];")
        self.in_registers[ref] = f"{name}[s * V + e]" if lanes else f"{name}[s]"
        (body.each if lanes else body.before).append(f"{self.in_registers[ref]} = {ref.name};")

    def _fetched(self, ref: Ref, body: Body) -> None:
        kind = "bool" if ref.type == "bool" else "float"
        line = f"const {kind} {ref.name} = {self.in_registers[ref]};"
        (body.each if self._by_lane(ref) else body.before).append(line)

    def _accumulated(self, accumulate: Accumulate, body: Body) -> None:
        op, name = COMBINE[accumulate.op], accumulate.ref.name
        body.each.append(f"{name}_[e] = {op}::join({name}_[e], {self._name(accumulate.arg)});")
        body.accumulators.append(
            {"ref": name, "op": op, "identity": literal(IDENTITY[accumulate.op]), "parts": f"{self.kernel.name}_{name}"}
        )

    def _stored(self, store: Store, body: Body) -> None:
        body.stores = True
        if not self._wide(store.buffer, store.address):
            body.each.append(self._scalar_store(store))
            return
        held = f"out{len(body.after)}_"
        body.before.append(f"Pack<{CTYPES[store.buffer.dtype]}, V> {held};")
        body.each.append(f"{held}.v[e] = {self._rounded(store)};")
        place = f"{self._use(store.buffer, written=True)} + {self._address(store.address)}"
        body.after.append(f"put<V>({place}, {held});")

    def _wide(self, buffer: Buffer | None, address: Affine | None) -> bool:
        """Whether a thread's lanes lie one beside the other, at a multiple of their size."""
        if buffer is None or address is None or self.lane is None or address.coefficient(self.lane) != 1:
            return False
        if any(isinstance(atom, Chosen) and self.lane in atom.deps for atom, _ in address.terms):
            return False
        return all(c % self.vector == 0 for atom, c in address.terms if atom is not self.lane) and (
            address.const % self.vector == 0
        )

    # --- values ------------------------------------------------------------------------------------------------------

    def _by_lane(self, ref: Ref) -> bool:
        return self.lane is not None and self.lane in ref.deps

    def _declared(self, statement: Statement) -> str:
        return f"const {_ctype(statement)} {statement.ref.name} = {self._value(statement)};"

    def _name(self, ref: Ref) -> str:
        if ref.literal is not None:
            return literal(ref.literal)
        ref = self.shared.same.get(ref, ref)
        of_row = self.row_lane is not None and ref.deps <= set(self.kernel.rows) and self.row_lane in ref.deps
        return f"{ref.name}[e]" if of_row else ref.name

    def _use(self, buffer: Buffer, written: bool = False) -> str:
        self.used[buffer.name] = (buffer, written or self.used.get(buffer.name, (buffer, False))[1])
        return buffer.name

    def _address(self, address: Affine, element: bool = False) -> str:
        """Offset in elements; with `element`, of the e-th lane of the thread."""
        terms = [(self._loop(atom, element), c) for atom, c in address.terms]
        parts = [name if c == 1 else f"{name} * {c}" for name, c in sorted(terms, key=lambda t: (-t[1], t[0]))]
        if address.const or not parts:
            parts.append(str(address.const))
        return " + ".join(parts)

    def _loop(self, atom: Atom, element: bool) -> str:
        if isinstance(atom, Chosen) and self.row_lane in atom.deps and atom.deps <= set(self.kernel.rows):
            return f"{atom.name}[e]"
        if atom is not self.lane:
            return atom.name
        return "(j + e)" if element else "j"

    def _value(self, statement: Statement) -> str:
        if statement.kind == "op":
            return self._op(statement)
        assert statement.address is not None
        at = self._address(statement.address, element=True)
        if statement.kind == "iota":
            return f"float({at})"
        assert statement.buffer is not None
        replaced = self.replaced.get((statement.buffer, statement.address))
        if replaced is not None:
            return replaced
        name, dtype = self._use(statement.buffer), statement.buffer.dtype
        if statement.op.startswith("wrap"):
            return f"wrapped({name}[{at}], {statement.op.split()[1]})"
        if dtype in FLOATS:
            return f"to_float(__ldg({name} + {at}))"
        return f"{name}[{at}]" if dtype == "bool" else f"to_float({name}[{at}])"

    def _op(self, statement: Statement) -> str:
        op, names = statement.op, [self._name(arg) for arg in statement.args]
        match op:
            case "where":
                return f"{names[0]} ? {names[1]} : {names[2]}"
            case "to_float":
                return f"({names[0]} ? 1.0f : 0.0f)" if statement.args[0].type == "bool" else names[0]
            case "to_float16" | "to_bfloat16":
                return f"to_float(from_float<{CTYPES[op.removeprefix('to_')]}>({names[0]}))"
            case "neg":
                return f"-{names[0]}"
            case "not":
                return f"!{names[0]}"
            case "isnan":
                return f"isnan({names[0]})"
            case "xor":
                return f"{names[0]} != {names[1]}"
            case "div":
                return self._quotient(statement, names)
        if op in INFIX:
            return f" {INFIX[op]} ".join(names)
        return f"{CALLS[op]}({', '.join(names)})"

    def _quotient(self, statement: Statement, names: list[str]) -> str:
        """Rows and constants are divided by once; where every element divides, a division of 2 ulp is quick."""
        divisor = statement.args[1]
        if divisor.literal is not None and LEAST_DIVISOR < abs(divisor.literal) < 1 / LEAST_DIVISOR:
            return f"{names[0]} * {literal(1 / divisor.literal)}"
        if divisor.literal is None and divisor.deps <= set(self.kernel.rows) and divisor.deps < statement.ref.deps:
            return f"{names[0]} * recip({names[1]})"
        return f"quotient({names[0]}, {names[1]})"

    def _rounded(self, store: Store) -> str:
        kind = CTYPES[store.buffer.dtype]
        return (
            f"from_float<{kind}>({self._name(store.ref)})" if kind not in ("float", "bool") else self._name(store.ref)
        )

    def _scalar_store(self, store: Store) -> str:
        name = self._use(store.buffer, written=True)
        return f"{name}[{self._address(store.address, element=self.lane is not None)}] = {self._rounded(store)};"


def literal(value: float) -> str:
    if value != value:
        return "CUDART_NAN_F"
    if value in (float("inf"), float("-inf")):
        return f"({'-' if value < 0 else ''}CUDART_INF_F)"
    text = number(value)
    return f"({text})" if text.startswith("-") else text


def _ctype(statement: Statement) -> str:
    if statement.op.startswith("wrap"):
        return "I"
    return "bool" if statement.ref.type == "bool" else "float"


def decode(atoms: list[Atom], running: str) -> list[str]:
    """Loop variables from a running number."""
    lines = []
    for position, atom in enumerate(atoms):
        below = total(atoms[position + 1 :])
        value = running if below == 1 else f"{running} / {below}"
        if position:
            value = f"{running} % {atom.size}" if below == 1 else f"({value}) % {atom.size}"
        lines.append(f"const I {atom.name} = {value};")
    return lines


def _decode_columns(cols: list[Atom], lane: Atom | None, inner: int) -> list[str]:
    """From the number `at` of a vector: the lane runs fastest, so that neighbouring threads read neighbours."""
    if lane is None:
        return decode(cols, "at")
    if not cols:
        return ["const I j = at * V;"]
    return [*decode(cols, f"(at / {inner})"), f"const I j = at % {inner} * V;"]
