"""A program in a real pseudo-terminal: what it prints is gathered, keys and signals can be sent to it."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 120.0
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*(?:\x07|\x1b\\)|[@-_])")


def environment(**more: str) -> dict[str, str]:
    """A small, known environment with this checkout on the module path."""
    base = {name: os.environ[name] for name in ("PATH", "HOME", "CUDA_AGENT_CACHE") if name in os.environ}
    return base | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'ui'}", "TERM": "xterm-256color", "LANG": "C.UTF-8"} | more


class Terminal:
    """`columns` x 40 characters. The program is its session's leader, so that keys reach it as from a person."""

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 110
    ) -> None:
        self.output = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._slave = slave
        self.process = subprocess.Popen(
            argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=dict(env or environment()),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    @property
    def text(self) -> str:
        """The output so far, without control sequences."""
        return _CONTROL.sub("", self.output).replace("\r", "")

    def expect(self, words: str, *, count: int = 1) -> str:
        """Wait until `words` were printed `count` times; fails with what there is instead."""
        deadline = time.monotonic() + PATIENCE_S
        while self.text.count(words) < count:
            if not self._read(0.2) and (self.process.poll() is not None or time.monotonic() > deadline):
                self._read(0)
                if self.text.count(words) >= count:
                    break
                raise AssertionError(
                    f"{words!r} was not printed {count} times (exit {self.process.poll()}):\n{self.text}"
                )
        return self.text

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def ended(self) -> int:
        """Wait for the program's end and return its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            self._read(0.2)
            assert time.monotonic() < deadline, f"it goes on:\n{self.text}"
        while self._read(0.05):
            pass
        return self.process.returncode

    def echoes(self) -> bool:
        """Whether the terminal is in its ordinary state: whole lines, with echo."""
        flags = termios.tcgetattr(self._slave)[3]
        return bool(flags & termios.ICANON) and bool(flags & termios.ECHO)

    def _read(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], timeout_s)
        if not ready:
            return False
        with contextlib.suppress(OSError):
            data = os.read(self._master, 65536)
            self.output += data.decode("utf-8", "replace")
            return bool(data)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@contextlib.contextmanager
def python(script: str, *arguments: str, cwd: Path, **more: str) -> Iterator[Terminal]:
    """A script of this folder in a terminal."""
    path = Path(__file__).resolve().parent / script
    with Terminal([sys.executable, str(path), *arguments], cwd=cwd, env=environment(**more)) as terminal:
        yield terminal
