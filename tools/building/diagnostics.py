"""Turns compiler and linker output into file:line:column:severity:message entries and explains the known traps."""

import re
from typing import Any, Final

MAX_DIAGNOSTICS: Final = 60
OWN_MODULE: Final = (
    "a source uses PYBIND11_MODULE; the build brings the module: use REGISTER_BINDING(name, register_fn) instead"
)
_GNU: Final = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning|note): (?P<message>.*)$"
)
_EDG: Final = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
    r"(?P<severity>catastrophic error|error|warning|remark)(?: #[\w-]+)?: (?P<message>.*)$"
)
_SEVERITY: Final = {"fatal error": "error", "catastrophic error": "error", "remark": "note"}
_UNRESOLVED: Final = re.compile(r"undefined reference to [`'‘](?P<symbol>[^'’]+)['’]")
_TWICE: Final = re.compile(r"multiple definition of [`'‘](?P<symbol>[^'’;]+)['’]")
_BAD_OVERLOAD: Final = "unresolved overloaded function type"


def parse(output: str) -> list[dict[str, Any]]:
    """At most MAX_DIAGNOSTICS entries, errors first kept in the order in which the compiler wrote them."""
    found = []
    for line in output.splitlines():
        match = _GNU.match(line) or _EDG.match(line)
        if match:
            found.append(_entry(match))
    errors = [entry for entry in found if entry["severity"] == "error"]
    rest = [entry for entry in found if entry["severity"] != "error"]
    return (errors + rest)[:MAX_DIAGNOSTICS]


def _entry(match: re.Match[str]) -> dict[str, Any]:
    parts = match.groupdict()
    severity = parts["severity"]
    return {
        "file": parts["file"].removeprefix("./"),
        "line": int(parts["line"]),
        "column": int(parts.get("column") or 0),
        "severity": _SEVERITY.get(severity, severity),
        "message": parts["message"][:1000],
    }


def unresolved_symbols(link_output: str) -> list[str]:
    """Names that nothing defines, without those that the running interpreter provides."""
    names = {match["symbol"] for match in _UNRESOLVED.finditer(link_output)}
    return sorted(name for name in names if not re.match(r"_?Py[A-Z_]", name))


def explain_compile(source: str, diagnostics: list[dict[str, Any]], output: str) -> list[dict[str, str]]:
    """The reasons for a source that did not compile: the known trap where there is one, else the first error."""
    reasons = []
    if _BAD_OVERLOAD in output:
        reasons.append(_name_collision(source, diagnostics))
    errors = [entry for entry in diagnostics if entry["severity"] == "error"]
    first = errors[0] if errors else None
    where = f"{first['file']}:{first['line']}: {first['message']}" if first else _last_line(output)
    reasons.append({"code": "build.compile_error", "detail": f"{source} does not compile. {where}{_advice(where)}"})
    return reasons


def _name_collision(source: str, diagnostics: list[dict[str, Any]]) -> dict[str, str]:
    spots = [f"{entry['file']}:{entry['line']}" for entry in diagnostics if _BAD_OVERLOAD in entry["message"]]
    detail = (
        f"{spots[0] if spots else source}: the function whose address is taken has the name of another function that "
        "the headers declare (often one of the C library, such as select, index, remove, round, gamma, y0). Rename the "
        "C++ function (for example select_rows) and keep the name for Python in m.def."
    )
    return _reason("build.name_collision", detail)


def _advice(message: str) -> str:
    if "has not been declared" in message or "is not a member of" in message:
        return (
            " (torch/extension.h is the small one here: tensors and pybind; <torch/all.h> has torch::nn and the rest)"
        )
    if "No such file or directory" in message and "binding_registry.h" in message:
        return ' (write #include "../binding_registry.h": the build puts it one folder above kernels/)'
    if "No such file or directory" in message:
        return " (only headers directly in kernels/, torch's, the system's and CUDA's are on the include path)"
    return ""


def explain_link(output: str, *, module: str) -> list[dict[str, str]]:
    """The reasons for a link that failed or left symbols unresolved."""
    twice = sorted({match["symbol"] for match in _TWICE.finditer(output)})
    names = [name.removeprefix("agent_binding_") for name in twice if name.startswith("agent_binding_")]
    reasons = [
        _reason("build.duplicate_binding", f"REGISTER_BINDING is used twice for the name {name}") for name in names
    ]
    if f"PyInit_{module}" in " ".join(twice):
        return [*reasons, _reason("build.own_module", OWN_MODULE)]
    others = [name for name in twice if not name.startswith(("agent_binding_", "agent_registrar_"))]
    for name in others[:5]:
        reasons.append(
            _reason("build.multiple_definition", f"{name} is defined in more than one source; make it static or inline")
        )
    for name in unresolved_symbols(output)[:5]:
        reasons.append(_reason("build.undefined_symbol", f"nothing defines {name}{_undefined_advice(name)}"))
    return reasons or [_reason("build.link_error", _last_line(output))]


def _undefined_advice(name: str) -> str:
    if name.startswith(("_Z", "at::", "c10::", "torch::")):
        return "; neither a file in kernels/ nor torch's libraries hold it"
    return '; is it in kernels/, not static there, and extern "C" (with equal arguments) in both files or in neither?'


def _last_line(output: str) -> str:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    return lines[-1][:500] if lines else "the compiler printed nothing"


def _reason(code: str, detail: str) -> dict[str, str]:
    return {"code": code, "detail": detail}
