"""Runs one command and ends it when the process that asked for it is gone, however that ended.

    python -I keeper.py COMMAND…

The asker holds the other end of standard input: when it dies, kill -9 included, the pipe closes and the command is
killed. If the keeper itself is killed, the kernel kills the command (PR_SET_PDEATHSIG, Linux). It ends as the command.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(command: list[str]) -> int:
    # The only thread so far, so that it is safe to run code between fork and exec.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent) as process:
        threading.Thread(target=_watch, args=(process,), daemon=True).start()
        code = process.wait()
    return 128 - code if code < 0 else code


def _watch(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    process.kill()


if __name__ == "__main__":
    for name in (signal.SIGINT, signal.SIGTERM):  # a terminal's ^C is the asker's to answer
        signal.signal(name, signal.SIG_IGN)
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as error:
        sys.stderr.write(f"cannot start {sys.argv[1]}: {error.strerror}\n")
        sys.exit(127)
