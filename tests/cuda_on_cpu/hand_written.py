"""Hand-written examples: what their scripts leave in a workspace, and their tasks with fewer rows."""

from pathlib import Path
from typing import Any, Final

from torch import nn

from agent.backends.script import read_script

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
# The first size of every input; the others stay, because kernels are made for them.
FEWER: Final = {"16384, 64": "5, 64", "16384, 2048": "5, 2048", "4096, 16384": "3, 16384", "(4096,)": "(3,)",
                "32, 64, 128": "2, 64, 128", "8192, 4096": "6, 4096"}  # fmt: skip


def written(name: str) -> dict[str, str]:
    """Text of every file at the end of the script."""
    files: dict[str, str] = {}
    for turn in read_script(EXAMPLES / name / "turns.md").turns:
        for action, arguments in turn.actions:
            if action == "write_file":
                files[arguments["path"]] = arguments["content"]
            elif action == "edit_file":
                files[arguments["path"]] = files[arguments["path"]].replace(arguments["old"], arguments["new"])
    return files


def task(name: str) -> tuple[nn.Module, list[Any], list[Any]]:
    """The model, its inputs with few rows, and what modules are constructed with."""
    text = (EXAMPLES / name / "model.py").read_text()
    for many, few in FEWER.items():
        text = text.replace(many, few)
    space: dict[str, Any] = {}
    exec(text, space)
    arguments = space["get_init_inputs"]()
    return space["Model"](*arguments).eval(), space["get_inputs"](), arguments
