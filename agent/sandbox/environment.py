"""The environment of every command in a sandbox: a fixed list, nothing of the host's own."""

import os
from collections.abc import Mapping
from typing import Final

from agent.sandbox.runner import HOME

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CUDA_BIN: Final = "/usr/local/cuda/bin"
QUIET: Final[Mapping[str, str]] = {
    # Nothing in a sandbox has a terminal: pagers would wait, progress bars would fill the observation.
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "LESS": "-R",
    "TERM": "dumb",
    "PIP_PROGRESS_BAR": "off",
    "TQDM_DISABLE": "1",
}


def sandbox_env(extra: Mapping[str, str], *, path: str, cpus: float | None, tmp: str = "/tmp") -> dict[str, str]:
    """HOME, TMPDIR, PATH and so on, then `extra`."""
    jobs = max(1, int(cpus)) if cpus else os.cpu_count() or 1
    return {
        "HOME": HOME if tmp == "/tmp" else f"{tmp}/home",
        "TMPDIR": tmp,
        "PATH": path,
        "LANG": "C.UTF-8",
        # A uid without an entry in passwd: getpass and torch's cache folder ask for a name.
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        # ninja would start one compiler per core of the host and hit the limits on processes and memory.
        "MAX_JOBS": str(min(jobs, 8)),
        "TORCH_EXTENSIONS_DIR": f"{tmp}/torch_extensions",
        "PYTHONUNBUFFERED": "1",
        **QUIET,
        **extra,
    }
