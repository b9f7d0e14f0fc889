"""Which sandboxes an episode and its judge run in: what is mounted where, with which limits."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from agent.assets import asset
from agent.config import Config, SandboxConfig
from agent.judging.tool_runs import Target
from agent.sandbox.base import CACHE, SKILL, TOOLS, Limits, Mount, Sandbox, SandboxSpec
from agent.sandbox.labels import ROLE
from agent.sandbox.open import open_sandbox

SKILL_NAME = "cuda-kernel-optimization"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
BUILDS: Final = "/opt/agent-builds"
BUILDS_ENV: Final = {"AGENT_BUILDS": BUILDS}
"""Where tools keep an episode's builds: one folder for its sandbox and the tools that stand by. No judge sees it."""
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
    builds: Path | None = None,
) -> SandboxSpec:
    """The model's sandbox: its workspace writable, tools, skill and cache read-only; `builds`: see BUILDS."""
    return SandboxSpec(
        workspace=workspace,
        mounts=(
            Mount(asset("tools"), TOOLS),
            Mount(asset("skills") / SKILL_NAME, SKILL),
            Mount(cache, CACHE),
            *mounts,
            *(_builds(builds) if builds else ()),
        ),
        env=BUILDS_ENV if builds else {},
        limits=sandbox_limits(config.sandbox, log_mb=config.limits.log_mb),
        labels=labels,
        gpus="all" if target == "cuda" else "none",
    )


def standing_sandbox(
    config: Config,
    *,
    target: Target,
    workspace: Path,
    cache: Path,
    builds: Path,
    mounts: tuple[Mount, ...],
    opened: Opened,
) -> contextlib.AbstractContextManager[Sandbox]:
    """A fresh sandbox for a tool that waits for one submission; as the judge's, but with the episode's builds."""
    return _sandbox(
        config,
        target=target,
        workspace=workspace,
        cache=cache,
        workspace_read_only=True,
        opened=opened,
        mounts=(*mounts, *_builds(builds)),
        env=BUILDS_ENV,
    )


def _builds(folder: Path) -> tuple[Mount, ...]:
    return (Mount(folder, BUILDS, read_only=False),)


def judging_sandbox(
    config: Config,
    *,
    target: Target,
    workspace: Path,
    cache: Path,
    opened: Opened | None = None,
    mounts: tuple[Mount, ...] = (),
) -> contextlib.AbstractContextManager[Sandbox]:
    """A fresh sandbox for the judge, closed afterwards; submission, tools and cache are read-only in it."""
    return _sandbox(
        config,
        target=target,
        workspace=workspace,
        cache=cache,
        workspace_read_only=True,
        opened=opened,
        mounts=mounts,
    )


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
    config: Config,
    *,
    target: Target,
    workspace: Path,
    cache: Path,
    workspace_read_only: bool,
    opened: Opened | None,
    mounts: tuple[Mount, ...] = (),
    env: Mapping[str, str] = NOTHING,
) -> Iterator[Sandbox]:
    spec = SandboxSpec(
        workspace=workspace,
        workspace_read_only=workspace_read_only,
        env=env,
        mounts=(Mount(asset("tools"), TOOLS), Mount(cache, CACHE, read_only=workspace_read_only), *mounts),
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
