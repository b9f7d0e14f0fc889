"""`agent sandbox ls|clean`."""

import socket
import sys
from datetime import UTC, datetime, timedelta

from agent.sandbox.orphans import Leftover, clean, list_sandboxes
from agent.ui.console import make_console, safe
from agent.ui.quantities import parse_duration, show_duration
from agent.ui.tables import print_columns


def run_list() -> int:
    """Running sandboxes and what dead processes left."""
    found = list_sandboxes()
    if not found:
        sys.stdout.write("no sandboxes\n")
        return 0
    rows = [[one.kind, _short(one), _age(one), one.state, _owner(one), one.run] for one in found]
    print_columns(make_console(), ("kind", "id", "age", "state", "owner", "run"), rows, right="llrlll")
    return 0


def run_clean(*, older_than: str | None, everything: bool) -> int:
    """Remove what dead processes left; `everything` also what may still be in use."""
    age = None if older_than is None else timedelta(seconds=parse_duration(older_than, flag="--older-than"))
    removed = clean(older_than=age, force=everything)
    for one in removed:
        sys.stdout.write(f"removed {one.kind} {_short(one)}\n")
    if not removed:
        sys.stdout.write("nothing to remove\n")
    return 0


def _short(one: Leftover) -> str:
    return one.id[:12] if one.kind == "docker" else safe(one.id)


def _owner(one: Leftover) -> str:
    if one.abandoned:
        return "left behind"
    elsewhere = f" on {safe(one.host)}" if one.host != socket.gethostname() else ""
    return f"process {one.pid}{elsewhere}"


def _age(one: Leftover) -> str:
    return show_duration((datetime.now(UTC) - one.created).total_seconds())
