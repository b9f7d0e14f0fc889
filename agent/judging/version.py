"""Which judge this is: the version of this program and a hash over tools/, which decide every verdict."""

import hashlib
from dataclasses import dataclass

from agent import __version__
from agent.assets import asset


@dataclass(frozen=True)
class JudgeVersion:
    """Two judges of the same `tools_sha256` check and time in the same way."""

    agent_version: str
    tools_sha256: str


def judge_version() -> JudgeVersion:
    """The present judge."""
    return JudgeVersion(__version__, tools_sha256())


def tools_sha256() -> str:
    """Over names and bytes of all files below tools/."""
    total = hashlib.sha256()
    root = asset("tools")
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()
