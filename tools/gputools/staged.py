"""A submission laid out and built for a run under a profiler: paths, and the command line of its process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import build
from building.toolchain import Target
from referee import removal

SUBJECT = Path(__file__).resolve().parent / "subject.py"


class NotBuilt(Exception):
    """The submission does not build; carries build.py's report."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__(report["status"])
        self.report = report


@dataclass(frozen=True)
class Staged:
    """`scratch` is a folder for whatever the run leaves behind; `module` is None for a single-file submission."""

    workspace: Path
    scratch: Path
    model: Path
    module: Path | None
    report: dict[str, Any]
    device: str

    def command(self, *flags: str) -> list[str]:
        folder = [] if self.module is None else ["--module-folder", str(self.module.parent)]
        paths = ["--model", str(self.model), "--folder", str(self.workspace), "--device", self.device]
        return [sys.executable, "-I", str(SUBJECT), *paths, *folder, *flags]


@contextmanager
def staged(workspace: Path, model_py: str, *, target: Target, cache: Path | None) -> Iterator[Staged]:
    """Raises NotBuilt. The scratch folder is removed at the end."""
    report = build.build(workspace, target=target, cache=cache)
    if report["status"] not in ("built", "no_sources"):
        raise NotBuilt(report)
    with removal.scratch("agent-inspect-") as folder:
        model = folder / "model.txt"
        model.write_text(model_py, encoding="utf-8", errors="replace")
        module = Path(report["module"]) if report["module"] else None
        device = "cuda" if target == "cuda" else "cpu"
        yield Staged(workspace.resolve(), folder, model, module, report, device)
