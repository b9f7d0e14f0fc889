"""Labels that tell whose sandbox a container or folder is, so that what a dead process left can be found."""

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

PREFIX: Final = "org.cuda-agent."
OWNER: Final = f"{PREFIX}sandbox"
RUN: Final = f"{PREFIX}run"
ROLE: Final = f"{PREFIX}role"
HOST: Final = f"{PREFIX}host"
PID: Final = f"{PREFIX}pid"
PID_START: Final = f"{PREFIX}pid-start"
BOOT: Final = f"{PREFIX}boot"


def owner_labels() -> dict[str, str]:
    """Labels of a sandbox that this process opens now."""
    return {
        OWNER: "1",
        HOST: socket.gethostname(),
        PID: str(os.getpid()),
        PID_START: start_of(os.getpid()),
        BOOT: boot_id(),
    }


def is_abandoned(labels: Mapping[str, str]) -> bool:
    """Whether the owner is known to be dead: same host, and another boot, no such process, or a reused process id."""
    if labels.get(HOST) != socket.gethostname() or not labels.get(PID, "").isdigit():
        return False
    if labels.get(BOOT) != boot_id():
        return True
    return start_of(int(labels[PID])) != labels.get(PID_START)


@cache
def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """Start time of a process in clock ticks since boot, or an empty string when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    # The name in parentheses may hold spaces and parentheses itself.
    return stat.rpartition(b")")[2].split()[19].decode("ascii")
