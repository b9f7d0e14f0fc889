"""Which sandboxes an episode and its judge run in: what is mounted where, with which limits."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agent.assets import asset
from agent.config import Config, SandboxConfig
from agent.judging.tool_runs import Target
from agent.sandbox.base import CACHE, SKILL, TOOLS, Limits, Mount, Sandbox, SandboxSpec
from agent.sandbox.open import open_sandbox

SKILL_NAME = "cuda-kernel-optimization"
GIB = 1 << 30
Opened = Callable[[Sandbox], None]
"""Told of every sandbox that is opened, so that somebody else can close it to end what runs in it."""


def sandbox_limits(config: SandboxConfig) -> Limits:
    return Limits(
        memory_bytes=int(config.memory_gb * GIB),
        pids=config.pids,
        cpus=config.cpus,
        shm_bytes=int(config.shm_gb * GIB),
        tmp_bytes=int(config.tmp_gb * GIB),
    )


def episode_spec(
    config: Config,
    *,
    target: Target,
    workspace: Path,
    cache: Path,
    mounts: tuple[Mount, ...],
    labels: Mapping[str, str],
) -> SandboxSpec:
    """The model's sandbox: its workspace writable, tools, skill and cache read-only."""
    return SandboxSpec(
        workspace=workspace,
        mounts=(
            Mount(asset("tools"), TOOLS),
            Mount(asset("skills") / SKILL_NAME, SKILL),
            Mount(cache, CACHE),
            *mounts,
        ),
        limits=sandbox_limits(config.sandbox),
        labels=labels,
        gpus="all" if target == "cuda" else "none",
    )


@contextlib.contextmanager
def judging_sandbox(
    config: Config,
    *,
    target: Target,
    workspace: Path,
    cache: Path,
    cache_writable: bool = False,
    opened: Opened | None = None,
) -> Iterator[Sandbox]:
    """A fresh sandbox for trusted tools, closed afterwards; the workspace is read-only in it."""
    spec = SandboxSpec(
        workspace=workspace,
        workspace_read_only=True,
        mounts=(Mount(asset("tools"), TOOLS), Mount(cache, CACHE, read_only=not cache_writable)),
        limits=sandbox_limits(config.sandbox),
        labels={"role": "judge"},
        gpus="all" if target == "cuda" else "none",
    )
    sandbox = open_sandbox(config.sandbox, spec, target=target)
    try:
        if opened is not None:
            opened(sandbox)
        yield sandbox
    finally:
        sandbox.close()


@contextlib.contextmanager
def trusted_sandbox(
    config: Config, *, target: Target, cache: Path, cache_writable: bool, opened: Opened | None = None
) -> Iterator[Sandbox]:
    """A judging sandbox without any submission: for inspecting a task and for warming the cache."""
    with (
        tempfile.TemporaryDirectory(prefix="agent-empty-") as empty,
        judging_sandbox(
            config,
            target=target,
            workspace=Path(empty),
            cache=cache,
            cache_writable=cache_writable,
            opened=opened,
        ) as sandbox,
    ):
        yield sandbox
