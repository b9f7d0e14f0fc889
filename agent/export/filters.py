"""The language of --filter: comparisons of documented fields, joined by and, or, not and parentheses; never `eval`.

    reward >= 2 and (speedup_compile > 1.2 or not is_llm) and model ~ 'qwen*' and reason in (submitted, turns)

Texts are written with or without quotes; `~` compares with a shell pattern. A comparison with an unknown value (null)
is false, except `== null` and `!= null`.
"""

import difflib
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from agent.errors import ConfigError
from agent.export.facts import FIELDS, Facts

Predicate = Callable[[Facts], bool]
Value = float | str | bool | None

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<operator>>=|<=|==|!=|&&|\|\||[=<>~()!,])|(?P<word>[\w./:*?-]+))"
)
_ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_EQUAL: Final = frozenset({"==", "=", "!="})
_SAME_WORD: Final = {"&&": "and", "||": "or", "!": "not"}
_WORDS: Final[dict[str, Value]] = {"null": None, "none": None, "true": True, "false": False}
DEEPEST: Final = 50


@dataclass(frozen=True)
class Filter:
    """One parsed expression."""

    text: str
    keeps: Predicate


def parse_filter(text: str) -> Filter:
    """Raises ConfigError that says what is wrong and where."""
    parser = _Parser(text)
    keeps = parser.either()
    parser.finish()
    return Filter(text.strip(), keeps)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent over a short list of tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def either(self) -> Predicate:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda facts: any(part(facts) for part in parts)

    def finish(self) -> None:
        if self._next < len(self._tokens):
            raise self._wrong("and, or, or the end", self._tokens[self._next])

    def _both(self) -> Predicate:
        parts = [self._unary()]
        while self._take("and"):
            parts.append(self._unary())
        return parts[0] if len(parts) == 1 else lambda facts: all(part(facts) for part in parts)

    def _unary(self) -> Predicate:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ConfigError(f"--filter {_shown(self._text)}: nested more than {DEEPEST} deep")
        try:
            if self._take("not"):
                inner = self._unary()
                return lambda facts: not inner(facts)
            if self._take("("):
                inner = self.either()
                self._expect(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Predicate:
        token = self._advance("a field")
        if token.kind != "word":
            raise self._wrong("a field", token)
        name = self._field(token)
        symbol = self._peek()
        if symbol == "in":
            self._next += 1
            return self._among(name)
        if symbol in _ORDERED or symbol in _EQUAL or symbol == "~":
            self._next += 1
            return self._compare(name, symbol)
        if FIELDS[name].kind != "flag":
            raise self._wrong(f"a comparison of {name}", self._tokens[self._next - 1])
        return lambda facts: getattr(facts, name) is True

    def _compare(self, name: str, symbol: str) -> Predicate:
        value = self._value(name, pattern=symbol == "~")
        if symbol == "~":
            if FIELDS[name].kind != "text" or not isinstance(value, str):
                raise ConfigError(f"--filter {_shown(self._text)}: {name} is no text, so ~ cannot be used")
            return lambda facts: _matches(getattr(facts, name), str(value))
        if symbol in _EQUAL:
            equal = symbol != "!="
            if value is None:
                return lambda facts: (getattr(facts, name) is None) == equal
            return lambda facts: getattr(facts, name) is not None and (getattr(facts, name) == value) == equal
        if FIELDS[name].kind != "number" or value is None:
            raise ConfigError(f"--filter {_shown(self._text)}: {symbol} needs a numeric field and a number")
        compare = _ORDERED[symbol]
        return lambda facts: getattr(facts, name) is not None and compare(getattr(facts, name), value)

    def _among(self, name: str) -> Predicate:
        self._expect("(")
        values = {self._value(name)}
        while self._take(","):
            values.add(self._value(name))
        self._expect(")")
        return lambda facts: getattr(facts, name) in values

    def _value(self, name: str, *, pattern: bool = False) -> Value:
        token = self._advance(f"a value for {name}")
        if token.kind == "operator":
            raise self._wrong(f"a value for {name}", token)
        field = FIELDS[name]
        bare = token.text.lower() if token.kind == "word" else ""
        if bare in ("null", "none"):
            return None
        if field.kind == "flag" and bare in _WORDS:
            return _WORDS[bare]
        if field.kind == "number" and token.kind == "number":
            return float(token.text)
        if field.kind == "text":
            return self._word(name, token, pattern=pattern)
        raise ConfigError(
            f"--filter {_shown(self._text)}: {token.text} is no value for {name}", hint=f"{name} is a {field.kind}"
        )

    def _word(self, name: str, token: _Token, *, pattern: bool) -> str:
        value = token.text[1:-1] if token.kind == "text" else token.text
        words = FIELDS[name].words
        if words and not pattern and value not in words:
            raise ConfigError(
                f"--filter {_shown(self._text)}: {name} is never {value!r}", hint=f"it is one of {', '.join(words)}"
            )
        return value

    def _field(self, token: _Token) -> str:
        if token.text in FIELDS:
            return token.text
        near = difflib.get_close_matches(token.text, FIELDS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"fields: {', '.join(FIELDS)}"
        raise ConfigError(f"--filter {_shown(self._text)}: there is no field {token.text!r}", hint=hint)

    def _peek(self) -> str:
        if self._next >= len(self._tokens):
            return ""
        token = self._tokens[self._next]
        if token.kind == "word":
            return token.text.lower()
        return _SAME_WORD.get(token.text, token.text) if token.kind == "operator" else ""

    def _take(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._wrong(text, self._tokens[self._next] if self._next < len(self._tokens) else None)

    def _advance(self, wanted: str) -> _Token:
        if self._next >= len(self._tokens):
            raise self._wrong(wanted, None)
        self._next += 1
        return self._tokens[self._next - 1]

    def _wrong(self, wanted: str, token: _Token | None) -> ConfigError:
        found = f"{token.text!r} at character {token.at + 1}" if token else "the end"
        return ConfigError(f"--filter {_shown(self._text)}: expected {wanted}, found {found}")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at, end)
        if match is None or match.lastgroup is None:
            place = at + len(text[at:]) - len(text[at:].lstrip())
            raise ConfigError(f"--filter {_shown(text)}: cannot read {text[place]!r} at character {place + 1}")
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    if not found:
        raise ConfigError("--filter is empty", hint="for instance --filter 'reward >= 2'")
    return found


def _matches(value: object, pattern: str) -> bool:
    return isinstance(value, str) and fnmatchcase(value, pattern)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
