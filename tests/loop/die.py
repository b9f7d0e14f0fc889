"""Runs or resumes the episode in a folder and kills itself with SIGKILL right after its n-th event (0: never)."""

import os
import signal
import sys
from pathlib import Path

from agent.backends.replay import ReplayBackend
from agent.loop.control import SilentListener
from agent.loop.episode import resume_episode
from agent.trajectory.events import Event
from agent.trajectory.folder import RunFolder


class Dying(SilentListener):
    def __init__(self, after: int) -> None:
        self.left = after

    def on_event(self, event: Event) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, script: str, after: str) -> None:
    result = resume_episode(
        RunFolder.open(Path(folder)), backend=ReplayBackend(Path(script)), listener=Dying(int(after))
    )
    print(result.reason.value, result.reward, result.turns)


if __name__ == "__main__":
    main(*sys.argv[1:])
