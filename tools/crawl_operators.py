"""Lists operators of the installed torch and transformers: `python -I crawl_operators.py`, one JSON object on stdout.

Modules, functions and tensor methods of one tensor are found by introspection and tried on numbers; operators with
arguments come from crawling/recipes.py and are tried as well. Each has its signature, a rule for its output's shape,
the numbers that it takes and gives, and its cost; what is left out is named with the reason.
"""

import argparse
import contextlib
import functools
import importlib
import inspect
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from crawling import probing, recipes
from torch import nn

SPACES: Final = ("torch.nn.functional.", "torch.special.", "torch.Tensor.", "torch.")
NOT_OPERATORS: Final = ("clone", "contiguous", "detach", "alias", "float", "cpu", "cuda", "to", "share_memory",
                        "pin_memory", "softmax", "log_softmax", "softmin", "fftshift", "ifftshift")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="List operators of the installed torch and transformers as JSON.")
    parser.add_argument("--present", action="store_true", help="names as a JSON list on stdin: which are missing here?")
    parser.add_argument("--merge", type=Path, metavar="FILE", help="an earlier list, whose versions are kept")
    flags = parser.parse_args()
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    report: dict[str, Any] = {"schema_version": 1, "tool": "crawl_operators", "versions": _versions()}
    if flags.present:
        report["missing"] = [name for name in json.load(sys.stdin) if _object(name) is None]
    else:
        report |= _crawled(report["versions"])
        if flags.merge:
            report["operators"] = _merged(json.loads(flags.merge.read_text())["operators"], report["operators"])
    json.dump(report, stdout)
    stdout.write("\n")
    stdout.flush()
    return 0


def _crawled(versions: dict[str, str]) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for entry in _all():
        tried = entry.pop("tried")
        name = entry["name"] + (f" ({entry['variant']})" if "variant" in entry else "")
        if "left_out" in tried:
            left_out[name] = tried["left_out"]
        else:
            if problems := tried.pop("problems", None):
                left_out[f"{name}, in part"] = "; ".join(problems)
            source = entry["name"].partition(".")[0]
            found.append(entry | tried | {"versions": {source: [versions[source]]}})
    _without_aliases(found, left_out)
    counts = Counter(entry["family"] for entry in found)
    return {"operators": sorted(found, key=_place), "left_out": left_out, "families": dict(sorted(counts.items()))}


def _versions() -> dict[str, str]:
    versions = {"torch": torch.__version__.partition("+")[0]}
    with contextlib.suppress(ImportError):
        versions["transformers"] = str(importlib.import_module("transformers").__version__)
    return versions


def _all() -> Iterator[dict[str, Any]]:
    for entry in (*recipes.TORCH, *_from_transformers()):
        filled = {"form": "module" if entry["create"] else "function", "operands": 1, "domain": "any", **entry}
        filled["signature"] = _signature(_object(entry["name"]))
        yield filled | {"tried": probing.apart(functools.partial(probing.recipe, filled))}
    known = {entry["name"] for entry in recipes.TORCH}
    for name, kind in sorted(vars(nn).items()):
        if not isinstance(kind, type) or not issubclass(kind, nn.Module) or name.startswith("Lazy"):
            continue
        if f"torch.nn.{name}" not in known and name != "Softmax2d":
            entry = {"name": f"torch.nn.{name}", "form": "module", "create": f"nn.{name}()", "call": "{self}({x})"}
            yield _plain(entry, kind) | {
                "tried": probing.apart(functools.partial(probing.unary, functools.partial(_made, kind)))
            }
    for name, call in _functions():
        space = next(space for space in SPACES if name.startswith(space))
        short = name.removeprefix(space)
        text = {"torch.nn.functional.": f"F.{short}({{x}})", "torch.Tensor.": f"{{x}}.{short}()"}.get(
            space, f"{name}({{x}})"
        )
        form = "method" if space == "torch.Tensor." else "function"
        entry = {"name": name, "form": form, "create": "", "call": text}
        yield _plain(entry, call) | {
            "tried": probing.apart(functools.partial(probing.unary, functools.partial(_same, call)))
        }


def _made(kind: type[nn.Module]) -> nn.Module:
    return kind().eval()


def _same(call: Any) -> Any:
    return call


def _from_transformers() -> tuple[dict[str, Any], ...]:
    try:
        importlib.import_module("transformers")
    except ImportError:
        return ()
    return recipes.TRANSFORMERS


def _plain(entry: dict[str, Any], what: Any) -> dict[str, Any]:
    family = "activation" if entry["form"] == "module" or entry["name"].startswith("torch.nn.") else "pointwise"
    return entry | {"operands": 1, "rule": {"kind": "same"}, "family": family, "signature": _signature(what)}


def _functions() -> Iterator[tuple[str, Any]]:
    """Public functions and methods that need one tensor and nothing else."""
    names: dict[str, Any] = {}
    for call, pattern in torch.overrides.get_testing_overrides().items():
        name = torch.overrides.resolve_name(call) or ""
        short = name.rpartition(".")[2]
        if not name.startswith(SPACES) or short.startswith("_") or short.endswith("_") or short in NOT_OPERATORS:
            continue
        try:
            parameters = inspect.signature(pattern).parameters.values()
        except (TypeError, ValueError):
            continue
        needed = [
            p
            for p in parameters
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD and p.kind is not p.VAR_POSITIONAL
        ]
        if len(needed) == 1 and callable(call):
            names[name] = call
    yield from sorted(names.items())


def _merged(earlier: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything from both; what is in both has the present description and the versions of both."""
    known = {_place(entry): entry for entry in earlier}
    for entry in now:
        before = known.get(_place(entry), {}).get("versions", {})
        for source, versions in before.items():
            entry["versions"][source] = sorted({*versions, *entry["versions"].get(source, [])})
        known[_place(entry)] = entry
    return [known[place] for place in sorted(known)]


def _place(entry: dict[str, Any]) -> tuple[str, str, str]:
    return entry["name"], entry.get("variant", ""), entry["call"]


def _object(name: str) -> Any:
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
            for part in parts[end:]:
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            continue
    return None


def _signature(what: Any) -> str:
    """With the types where they are written down; functions of C++ show their schema."""
    try:
        return str(inspect.signature(what)).removesuffix(" -> None")
    except (TypeError, ValueError):
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{getattr(what, '__name__', '')}")
        return str(schemas[0]).partition("::")[2] if schemas else ""


def _without_aliases(found: list[dict[str, Any]], left_out: dict[str, str]) -> None:
    """Of several names for one function the shortest stays, once per way of writing it."""
    seen: dict[tuple[str, str], str] = {}
    for entry in sorted(found, key=lambda entry: (len(entry["name"]), entry["name"])):
        mark = entry.pop("print", None)
        if mark is None:
            continue
        other = seen.setdefault((mark, entry["form"]), entry["name"])
        if other != entry["name"]:
            left_out[entry["name"]] = f"the same as {other}"
            found.remove(entry)


if __name__ == "__main__":
    sys.exit(main())
