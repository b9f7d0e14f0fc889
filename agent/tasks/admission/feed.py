"""One run of tools/admit_task.py that is fed while it works: torch is imported once, and no lane waits for a batch.

Candidates go in through a file that the sandbox sees read-only, reports are read from the log of the command.
"""

import json
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from pydantic import ValidationError

from agent.errors import JudgeError, SandboxError
from agent.sandbox.base import ExecResult, Mount
from agent.tasks.admission.examiner import ONE_S, START_S, CandidateReport, Examination, Examiner

MOUNTED: Final = "/opt/agent-candidates"
QUEUE: Final = "queue.jsonl"
POLL_S: Final = 0.05
LIFE_S: Final = 7 * 24 * 3600.0
STALLED_S: Final = START_S + 3 * ONE_S
DEATHS: Final = 3


class Inbox:
    """The folder on the host; `mount` is how the sandbox sees it. Use as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="agent-candidates-", ignore_cleanup_errors=True)
        self.path = Path(self._folder.name) / "shown"
        self.path.mkdir()
        for folder in (self.path.parent, self.path):
            folder.chmod(0o755)  # a container's user is another one
        self.log = Path(self._folder.name) / "reports.log"
        self.mount = Mount(self.path, MOUNTED)

    def __enter__(self) -> "Inbox":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()


class Feed:
    """Candidates in, reports out, by id. `waiting` are those without a report yet."""

    def __init__(self, examiner: Examiner, inbox: Inbox, how: Examination) -> None:
        self.waiting: dict[str, str] = {}
        self._examiner = examiner
        self._inbox = inbox
        self._how = how
        self._deaths = 0
        self._run: _Run | None = None

    def submit(self, texts: Mapping[str, str]) -> None:
        """Those that are waiting already are not asked for again."""
        fresh = {id: text for id, text in texts.items() if id not in self.waiting}
        self.waiting |= fresh
        if self._run is not None:
            self._run.add(fresh)

    def reports(self) -> list[CandidateReport]:
        """Waits for at least one. A tool that ended is started again with what is left.

        Raises JudgeError where it ends three times without a report or says nothing for minutes, SandboxError where
        the sandbox is gone.
        """
        until = time.monotonic() + STALLED_S
        while time.monotonic() < until:
            self._run = self._run or _Run(self._examiner, self._inbox, self._how, self.waiting)
            over = self._run.over
            found = [report for report in self._run.read() if self.waiting.pop(report.id, None) is not None]
            if found:
                self._deaths = 0
                return found
            if over:
                self._count_death(self._run)
                until = time.monotonic() + STALLED_S
            time.sleep(POLL_S)
        raise JudgeError("the examination of candidates is stuck", hint="the same command goes on where it was")

    def close(self) -> None:
        """Reads no more; the tool ends with its sandbox."""
        if self._run is not None:
            self._run.close()

    def _count_death(self, run: "_Run") -> None:
        self._deaths += 1
        result = run.result()
        self._run = None
        if self._deaths == DEATHS:
            lines = result.stderr.text().strip().splitlines()
            hint = lines[-1][:300] if lines else f"{result.status}, exit code {result.exit_code}"
            raise JudgeError("the examination of candidates ended three times in a row", hint=hint)


class _Run:
    """One process of the tool, in a thread that waits for it."""

    def __init__(self, examiner: Examiner, inbox: Inbox, how: Examination, texts: Mapping[str, str]) -> None:
        self._queue = inbox.path / QUEUE
        self._queue.write_bytes(b"")
        self._queue.chmod(0o644)
        inbox.log.write_bytes(b"")
        self._log = inbox.log.open("rb")
        self._torn = b""
        self._ended: ExecResult | SandboxError | None = None
        self.add(texts)
        argv = examiner.command(how, "--queue", f"{MOUNTED}/{QUEUE}")
        self._thread = threading.Thread(target=self._wait, args=(examiner, argv, inbox.log), daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def add(self, texts: Mapping[str, str]) -> None:
        lines = "".join(json.dumps({"id": id, "model_py": text}) + "\n" for id, text in texts.items())
        with self._queue.open("a", encoding="ascii") as file:
            file.write(lines)

    def read(self) -> list[CandidateReport]:
        """What has come since the last time; lines that are no reports are what something printed."""
        *whole, self._torn = (self._torn + self._log.read()).split(b"\n")
        found: list[CandidateReport] = []
        for line in whole:
            try:
                found.append(CandidateReport.model_validate(json.loads(line)))
            except (ValueError, ValidationError):
                continue
        return found

    def close(self) -> None:
        self._log.close()

    def result(self) -> ExecResult:
        """How the tool ended. Raises SandboxError where the sandbox was gone."""
        self._thread.join()
        self.close()
        if isinstance(self._ended, SandboxError):
            raise self._ended
        assert self._ended is not None
        return self._ended

    def _wait(self, examiner: Examiner, argv: tuple[str, ...], log: Path) -> None:
        try:
            self._ended = examiner.sandbox.exec(argv, timeout_s=LIFE_S, log=log)
        except SandboxError as error:
            self._ended = error
