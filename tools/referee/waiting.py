"""What a tool waits for that was started ahead: files that whoever started it puts into the folder of signals.

`device` holds environment variables that say which GPU may be used from now on; `submission` names the tool that is
wanted. The tool itself makes `idle` when it has done what it can without the device, and `prepared` when it waits for
the submission alone. All of them matter only before any code of the submission runs.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from referee.options import Options
from referee.outcome import Unjudgeable

LIMIT_S: Final = 7200.0
POLL_S: Final = 0.005
PATIENT_POLL_S: Final = 0.02  # once nothing has come for a second: many may stand by on one machine
VARIABLES: Final = ("CUDA_VISIBLE_DEVICES",)


@dataclass(frozen=True)
class Signals:
    """The folder of one tool, None where it has nothing to wait for."""

    folder: Path | None
    awaited: tuple[str, ...]

    @classmethod
    def of(cls, options: Options) -> "Signals":
        return cls(options.signals, options.awaited)

    def has_come(self, name: str) -> bool:
        return name not in self.awaited or (self.folder is not None and (self.folder / name).exists())

    def wait(self, name: str) -> dict[str, Any]:
        """What the file holds; nothing where it is not awaited."""
        if self.folder is None or name not in self.awaited:
            return {}
        started = time.monotonic()
        while not self.has_come(name):
            waited_s = time.monotonic() - started
            if waited_s > LIMIT_S:
                raise Unjudgeable("runtime.referee_await", f"no {name} came within {LIMIT_S:.0f} s")
            time.sleep(POLL_S if waited_s < 1.0 else PATIENT_POLL_S)
        return self.read(name)

    def read(self, name: str) -> dict[str, Any]:
        assert self.folder is not None
        text = (self.folder / name).read_text(encoding="utf-8")
        found = json.loads(text) if text.strip() else {}
        if not isinstance(found, dict):
            raise Unjudgeable("runtime.referee_await", f"{name} holds no JSON object")
        return found

    def tell(self, name: str) -> None:
        if self.folder is not None:
            (self.folder / name).touch()


def variables(told: dict[str, Any]) -> dict[str, str]:
    """Of what the device's file holds, the variables that a worker may be told."""
    return {name: str(told[name]) for name in VARIABLES if name in told}
