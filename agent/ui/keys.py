"""Single key presses while a live view runs, without echo and without waiting for Enter; ^C still sends its signal."""

import contextlib
import os
import select
import termios
import threading
from collections.abc import Callable, Mapping


class Keys:
    """Listens on a terminal in its own thread and calls the function of a key. `stop` restores the terminal.

    Does nothing where the descriptor is no terminal or the process is in the background.
    """

    def __init__(self, fd: int, handlers: Mapping[str, Callable[[], None]]) -> None:
        self._fd = fd
        self._handlers = handlers
        self._saved: list[object] | None = None
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None

    def start(self) -> None:
        if self._thread is not None or not _foreground(self._fd):
            return
        try:
            self._saved = termios.tcgetattr(self._fd)
            _unbuffered(self._fd)
        except termios.error:
            self._saved = None
            return
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._listen, args=(self._wake[0],), name="keys", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._wake is not None and self._thread is not None:
            os.write(self._wake[1], b"x")
            self._thread.join(timeout=2)
            for end in self._wake:
                os.close(end)
        if self._saved is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)  # type: ignore[arg-type]
        self._wake = self._thread = self._saved = None

    def _listen(self, wake: int) -> None:
        while True:
            ready, _, _ = select.select([self._fd, wake], [], [])
            if wake in ready or not _foreground(self._fd):
                return
            with contextlib.suppress(OSError):
                data = os.read(self._fd, 64)
                if not data:
                    return
                for char in data.decode("ascii", "ignore"):
                    if handler := self._handlers.get(char):
                        handler()


def _foreground(fd: int) -> bool:
    try:
        return os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _unbuffered(fd: int) -> None:
    mode = termios.tcgetattr(fd)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSADRAIN, mode)
