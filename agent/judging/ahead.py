"""A tool that was started before all that it needs is there: in a thread of its own, told by files what has come.

The files lie in a folder that the tool's sandbox sees; what they mean stands in tools/referee/waiting.py. They matter
only until the submission's code runs: afterwards nothing in the folder is read.
"""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Generic, TypeVar

from agent.sandbox.base import Mount
from agent.sandbox.mounts import remove_tree

SIGNALS: Final = "/opt/agent-signals"
LIFE_S: Final = 7200.0
"""Longest life of a tool that waits."""
POLL_S: Final = 0.02
T = TypeVar("T")


class Signals:
    """The folder on the host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def mount(self) -> Mount:
        return Mount(self.folder, SIGNALS, read_only=False)

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def tell(self, name: str, content: Mapping[str, str]) -> None:
        """Whole or not at all."""
        fresh = self.folder / f".{name}"
        fresh.write_text(json.dumps(dict(content)), encoding="utf-8")
        fresh.chmod(0o644)
        fresh.rename(self.folder / name)


@contextmanager
def signals() -> Iterator[Signals]:
    """A folder for one tool, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="agent-signals-"))
    folder.chmod(0o755)  # the sandbox's user is another one, and reads what is told
    try:
        yield Signals(folder)
    finally:
        remove_tree(folder)


class Ahead(Generic[T]):
    """A call that runs beside; what it raises, `result` raises.

    `work` may tell its result, by calling its argument, before it has cleaned up after itself.
    """

    def __init__(self, work: Callable[[Callable[[T], None]], None]) -> None:
        self._work = work
        self._known = threading.Event()
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="agent-ahead")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self._tell)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            self._error = error
        finally:
            self._known.set()

    def _tell(self, value: T) -> None:
        self._value.append(value)
        self._known.set()

    @property
    def is_known(self) -> bool:
        """Whether there is a result, or will never be one."""
        return self._known.is_set()

    def wait_until(self, reached: Callable[[], bool]) -> bool:
        """Until `reached`, or until the result is known; whether it was reached."""
        while not self._known.wait(POLL_S):
            if reached():
                return True
        return False

    def result(self, *, timeout_s: float, give_up: Callable[[], None]) -> T:
        """Raises TimeoutError, after `give_up`, where the time is over first."""
        if not self._known.wait(max(0.0, timeout_s)):
            give_up()
            raise TimeoutError(f"took longer than {timeout_s:.0f} s")
        if self._value:
            return self._value[0]
        assert self._error is not None
        raise self._error

    def join(self, *, timeout_s: float) -> None:
        """Until everything is cleaned up."""
        self._thread.join(timeout_s)
