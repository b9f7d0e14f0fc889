"""The README of tools/ and the tools agree on reason codes and files."""

import re
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
HOST = TOOLS.parent / "agent"
README = (TOOLS / "README.md").read_text(encoding="utf-8")
CODE = re.compile(r"\"((?:build|load|numeric|replay|timing|policy|tamper|runtime|task)\.[a-z0-9_]+)\"")

FILES = {"task.json", "timing.lock"}


def test_every_reason_code_is_explained():
    files = [*TOOLS.rglob("*.py"), *HOST.rglob("*.py")]
    used = {code for path in files for code in CODE.findall(path.read_text(encoding="utf-8"))} - FILES
    assert len(used) > 40
    missing = sorted(code for code in used if not code.startswith("build.") and f"`{code}`" not in README)
    assert missing == []


def test_every_module_of_the_referee_is_in_the_map():
    names = {path.stem for path in (TOOLS / "referee").glob("*.py")} - {
        "__init__",
        "outcome",
        "options",
        "staging",
        "seeds",
        "noise",
        "weights",
    }
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", README.split("## Files")[1])) == []
