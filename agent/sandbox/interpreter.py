"""Which folders of the host a Python interpreter needs, so that a sandbox can show exactly those."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from agent.errors import SandboxError

PROBE: Final = (
    "import json, sys, sysconfig; p = sysconfig.get_paths(); "
    "print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, "
    "p['stdlib'], p['platstdlib'], p['purelib'], p['platlib'], p['include']]))"
)
PROBE_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True)
class Interpreter:
    """`path` as it is called (a venv's link is kept), and the folders to show read-only."""

    path: Path
    folders: tuple[Path, ...]


def find_interpreter(python: str) -> Interpreter:
    """Look at `python`, or at the running interpreter where it is empty. Raises SandboxError when it does not run."""
    return _find(python or sys.executable)


@cache
def _find(python: str) -> Interpreter:
    path = Path(python).absolute()
    hint = "set sandbox.python to an interpreter that has torch"
    try:
        probe = subprocess.run(
            [path, "-I", "-c", PROBE],
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        prefixes = {Path(text) for text in json.loads(probe.stdout)}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxError(f"{path} does not run as a Python interpreter: {error}", hint=hint) from error
    links = {link.parent.parent for link in _link_chain(path)}
    folders = {folder.resolve() for folder in prefixes | links if folder.is_dir()} | {path.parent.parent}
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises where there is no home
    for folder in folders:
        if len(folder.parts) < 2 or folder == home:
            raise SandboxError(f"the interpreter {path} would show {folder} to the sandbox", hint=hint)
    return Interpreter(path, _outermost(folders))


def _link_chain(path: Path) -> list[Path]:
    """The file behind each step of a chain of links: python -> python3 -> /elsewhere/bin/python3.11."""
    chain: list[Path] = []
    while path.is_symlink() and len(chain) < 40:
        path = path.parent / path.readlink()
        chain.append(path)
    return chain


def _outermost(folders: set[Path]) -> tuple[Path, ...]:
    return tuple(sorted(f for f in folders if not any(other != f and f.is_relative_to(other) for other in folders)))
