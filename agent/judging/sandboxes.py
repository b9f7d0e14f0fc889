"""Which sandboxes an episode and its judge run in: what is mounted where, with which limits."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agent.assets import asset
from agent.config import Config, SandboxConfig
from agent.judging.tool_runs import Target
from agent.sandbox.base import CACHE, SKILL, TOOLS, Limits, Mount, Sandbox, SandboxSpec
from agent.sandbox.labels import ROLE
from agent.sandbox.open import open_sandbox

SKILL_NAME = "cuda-kernel-optimization"
GIB = 1 << 30
Opened = Callable[[Sandbox], None]
"""Told of every sandbox that is opened, so that somebody else can close it to end what runs in it."""


def sandbox_limits(config: SandboxConfig, *, log_mb: int = 256) -> Limits:
    return Limits(
        memory_bytes=int(config.memory_gb * GIB),
        pids=config.pids,
        cpus=config.cpus,
        shm_bytes=int(config.shm_gb * GIB),
        tmp_bytes=int(config.tmp_gb * GIB),
        log_bytes=log_mb << 20,
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
        limits=sandbox_limits(config.sandbox, log_mb=config.limits.log_mb),
        labels=labels,
        gpus="all" if target == "cuda" else "none",
    )


def judging_sandbox(
    config: Config, *, target: Target, workspace: Path, cache: Path, opened: Opened | None = None
) -> contextlib.AbstractContextManager[Sandbox]:
    """A fresh sandbox for the judge, closed afterwards; submission, tools and cache are read-only in it."""
    return _sandbox(config, target=target, workspace=workspace, cache=cache, workspace_read_only=True, opened=opened)


@contextlib.contextmanager
def trusted_sandbox(config: Config, *, target: Target, cache: Path, opened: Opened | None = None) -> Iterator[Sandbox]:
    """A sandbox without any submission, for inspecting a task and for filling the cache, which is writable in it.

    The cache is its workspace too: a container's user may write only where the workspace was given to it.
    """
    with _sandbox(
        config, target=target, workspace=cache, cache=cache, workspace_read_only=False, opened=opened
    ) as sandbox:
        yield sandbox


@contextlib.contextmanager
def _sandbox(
    config: Config, *, target: Target, workspace: Path, cache: Path, workspace_read_only: bool, opened: Opened | None
) -> Iterator[Sandbox]:
    spec = SandboxSpec(
        workspace=workspace,
        workspace_read_only=workspace_read_only,
        mounts=(Mount(asset("tools"), TOOLS), Mount(cache, CACHE, read_only=workspace_read_only)),
        limits=sandbox_limits(config.sandbox, log_mb=config.limits.log_mb),
        labels={ROLE: "judge"},
        gpus="all" if target == "cuda" else "none",
    )
    sandbox = open_sandbox(config.sandbox, spec, target=target)
    try:
        if opened is not None:
            opened(sandbox)
        yield sandbox
    finally:
        sandbox.close()
