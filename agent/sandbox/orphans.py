"""Sandboxes that a dead process left behind: containers by label, scratch folders by their owner file.

Covers: only what carries this project's label is ever touched, and only when its owner is known to be dead (same host,
and another boot, no such process, or a reused process id), unless `force` is given. Not covered: containers of other
hosts that use the same engine; they are listed and stay.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from agent.errors import SandboxError
from agent.sandbox.cgroup import remove_abandoned_groups
from agent.sandbox.engine import connect
from agent.sandbox.labels import HOST, OWNER, PID, RUN, is_abandoned
from agent.sandbox.mounts import remove_tree
from agent.sandbox.scratch import scratch_folders


@dataclass(frozen=True)
class Leftover:
    """One sandbox that exists now; `abandoned` means that its owner is known to be dead."""

    kind: str
    id: str
    run: str
    host: str
    pid: str
    created: datetime
    state: str
    abandoned: bool


Found = list[tuple[Leftover, Callable[[], None]]]


def list_sandboxes() -> tuple[Leftover, ...]:
    """All sandboxes of this project that this machine or its engine holds, running ones included."""
    return tuple(leftover for leftover, _ in _everything())


def clean(*, older_than: timedelta | None = None, force: bool = False) -> tuple[Leftover, ...]:
    """Remove abandoned sandboxes; with `force` also those whose owner may be alive. Returns what was removed."""
    now = datetime.now(UTC)
    removed: list[Leftover] = []
    for leftover, remove in _everything():
        old_enough = older_than is None or now - leftover.created >= older_than
        if old_enough and (leftover.abandoned or force):
            remove()
            removed.append(leftover)
    remove_abandoned_groups()
    return tuple(removed)


def sweep(kind: str) -> None:
    """Remove what dead processes left, at the start of a run; only of the kind that is used anyway, and silently."""
    with contextlib.suppress(SandboxError):
        for leftover, remove in _containers() if kind == "docker" else _folders():
            if leftover.abandoned:
                with contextlib.suppress(OSError, SandboxError):  # one that cannot go is no reason not to start
                    remove()
        remove_abandoned_groups()


def _everything() -> Found:
    return [*_containers(), *_folders()]


def _folders() -> Found:
    found: Found = []
    for folder, labels in scratch_folders():
        try:
            created = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
        except FileNotFoundError:  # its owner removed it meanwhile
            continue
        leftover = _leftover("folder", str(folder), labels, created=created, state="on disk")
        found.append((leftover, partial(remove_tree, folder)))
    return found


def _containers() -> Found:
    """Empty where no engine answers: then there are no containers either."""
    import docker
    import requests

    try:
        client = connect()
    except SandboxError:
        return []
    with contextlib.closing(client):
        try:
            entries = client.api.containers(all=True, filters={"label": f"{OWNER}=1"})
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise SandboxError(f"cannot list containers: {error}", hint="check `docker ps -a`") from error
    return [(_container(entry), partial(_remove_container, entry["Id"])) for entry in entries]


def _container(entry: Mapping[str, Any]) -> Leftover:
    created = datetime.fromtimestamp(int(entry["Created"]), UTC)
    return _leftover("docker", entry["Id"], entry.get("Labels") or {}, created=created, state=str(entry.get("State")))


def _leftover(kind: str, identity: str, labels: Mapping[str, str], *, created: datetime, state: str) -> Leftover:
    return Leftover(
        kind=kind,
        id=identity,
        run=labels.get(RUN, ""),
        host=labels.get(HOST, ""),
        pid=labels.get(PID, ""),
        created=created,
        state=state,
        abandoned=is_abandoned(labels),
    )


def _remove_container(identity: str) -> None:
    import docker

    with contextlib.closing(connect()) as client, contextlib.suppress(docker.errors.NotFound):
        client.api.remove_container(identity, force=True, v=True)
