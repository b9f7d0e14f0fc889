"""Opens sandboxes of every kind that works on this machine; the others skip with the reason."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent.config import SandboxConfig
from agent.sandbox.base import ExecResult, Limits, Sandbox, SandboxSpec
from agent.sandbox.open import check_bubblewrap, check_docker, open_sandbox

KINDS = (
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("bubblewrap", marks=pytest.mark.bubblewrap),
    "none",
)
CONFINED = KINDS[:2]
SMALL = Limits(memory_bytes=1 << 30, pids=128, shm_bytes=64 << 20, tmp_bytes=256 << 20)
Opener = Callable[..., Sandbox]


@cache
def unusable(kind: str) -> str:
    if kind == "none":
        return ""
    report = check_docker(SandboxConfig()) if kind == "docker" else check_bubblewrap(SandboxConfig())
    return "" if report.usable else report.detail


def require(kind: str) -> None:
    if reason := unusable(kind):
        pytest.skip(f"{kind} does not work here: {reason}")


def open_kind(kind: str, workspace: Path, **spec: Any) -> Sandbox:
    require(kind)
    spec = {"limits": SMALL, **spec}
    return open_sandbox(
        SandboxConfig(i_understand=True), SandboxSpec(workspace=workspace, **spec), target="cpu", kind=kind
    )


def shell(sandbox: Sandbox, command: str, *, timeout_s: float = 30.0, **options: Any) -> ExecResult:
    return sandbox.exec(["bash", "-lc", command], timeout_s=timeout_s, **options)


def said(result: ExecResult) -> str:
    assert result.ok, result
    return result.stdout.text().strip()
