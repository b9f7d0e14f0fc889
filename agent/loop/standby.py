"""A tool that stands by while the model thinks: torch imported, oracle and baselines ready, waiting for a submission.

Covers: it runs in a fresh sandbox of its own, which no command of the model enters, and serves one submission, which
the host copies into it; its seeds are drawn after that. Trouble of any kind gives no report: the action then runs as it
would without it, so that nothing is scored that a cold run would not score. A verdict counts only where it accepts;
whatever else it says is judged again by a cold judge. Not covered: the folder of builds is shared with the episode's
sandbox, whose commands may write there, as they may where verify and profile run without this; a judgement does not
use it. What is checked is the copy that a judge would get: model_new.py and kernels/.
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal

from agent.config import Config
from agent.errors import AgentError
from agent.judging.ahead import POLL_S, Ahead, Signals
from agent.judging.reports import ProfileReport, Verdict, VerifyReport
from agent.judging.sandboxes import Opened, standing_sandbox
from agent.judging.submission import prepare_workspace
from agent.judging.tool_runs import NoReport, Rules, Target, parse_report, run_standby
from agent.loop.waiting import Interrupted
from agent.sandbox.base import ExecResult, Sandbox
from agent.sandbox.scratch import make_scratch, remove_scratch
from agent.sandbox.snapshot import SnapshotError
from agent.tasks.task import Task

Wanted = Literal["verify", "profile"]
Spare = Callable[[Callable[[], bool]], AbstractContextManager[Mapping[str, str]]]
"""Holds the only device there is; asks its argument whether to give up."""
LEAST_MEMORY_BYTES: Final = 3 << 30
"""What the machine must have to spare: five processes with torch in them share most of their memory."""
CLOSING_S: Final = 30.0
_places = {
    "cpu": threading.BoundedSemaphore(max(1, (os.cpu_count() or 2) // 2)),
    "cuda": threading.BoundedSemaphore(2),
}
"""With more episodes than cores the time of the cores is what is short; on a GPU each takes memory of the GPU too."""


class NotStanding(Exception):
    """There is no report, and nothing is known about the submission: run the tool itself."""


class Standby:
    """One tool. It starts in a thread; `serve` may be called once, `close` at any time and from any thread."""

    def __init__(
        self, config: Config, task: Task, rules: Rules, *, cache: Path, builds: Path, spare: Spare | None = None
    ) -> None:
        """Raises SandboxError where its folder cannot be made."""
        self._config, self._task, self._rules, self._cache, self._builds = config, task, rules, cache, builds
        self._folder = make_scratch({})
        self._handed = self._folder / "handed"
        self._log = self._folder / "standby.log"
        self.signals = Signals(self._folder / "signals")
        for path in (self._handed, self.signals.folder):
            path.mkdir()
            path.chmod(0o755)
        self._sandbox: Sandbox | None = None
        self._closed, self._released = threading.Event(), threading.Event()
        self._taken = False
        self._told: Mapping[str, str] | None = None
        self._awaits_device = spare is not None or rules.target == "cuda"
        self._work = Ahead[ExecResult](self._run)
        self._preparation = Ahead[None](lambda _: self._prepare(spare)) if spare else None

    @property
    def stands(self) -> bool:
        """Whether it can still be given a submission."""
        return not (self._taken or self._closed.is_set() or self._work.is_known)

    def serve(
        self, wanted: Wanted, submission: Path, *, variables: Mapping[str, str], timeout_s: float, log: Path
    ) -> VerifyReport | ProfileReport:
        """The report on a workspace folder; `variables` say which GPU is held. Raises NotStanding, NoReport (as a tool
        that ran out of time or memory does).
        """
        return _report(wanted, self._served(wanted, submission, variables, timeout_s, log), timeout_s)

    def judge(
        self,
        workspace: Path,
        variables: Mapping[str, str],
        *,
        timeout_s: float,
        log: Path | None,
        opened: Opened | None,
    ) -> Verdict | None:
        """As tools/judge.py would, or None; see agent.judging.judge.Standing."""
        if opened is not None and self._sandbox is not None:
            opened(self._sandbox)
        try:
            result = self._served("judge", workspace, variables, timeout_s, log)
            return parse_report("judge", result, Verdict, timeout_s)
        except (NotStanding, NoReport):
            return None

    def _served(
        self, wanted: str, submission: Path, variables: Mapping[str, str], timeout_s: float, log: Path | None
    ) -> ExecResult:
        if not self.stands:
            raise NotStanding
        self._taken = True
        try:
            prepare_workspace(submission, self._handed / "submission")
            self._tell_device(variables)
            self.signals.tell("submission", {"tool": wanted})
            result = self._work.result(timeout_s=timeout_s, give_up=self.close)
        except TimeoutError as error:
            self._keep_log(log)
            raise NoReport(f"{wanted} {error}", status="timeout", stderr_tail="") from error
        except (AgentError, SnapshotError, OSError) as error:
            raise NotStanding from error
        self._keep_log(log)
        return result

    def wait_open(self) -> None:
        """Until its sandbox is there, and what is mounted into it may be removed."""
        self._work.wait_until(lambda: self._sandbox is not None)

    def close(self) -> None:
        """At once; `join` waits until nothing of it is left."""
        self._closed.set()
        self._released.set()
        if (sandbox := self._sandbox) is not None and not self._work.is_known:
            threading.Thread(target=sandbox.close, daemon=True).start()

    def join(self) -> None:
        self._work.join(timeout_s=CLOSING_S)

    @property
    def is_gone(self) -> bool:
        return not self._folder.exists()

    def _run(self, tell: Callable[[ExecResult], None]) -> None:
        awaited = ("device", "submission") if self._awaits_device else ("submission",)
        try:
            with standing_sandbox(
                self._config,
                target=self._rules.target,
                workspace=self._handed,
                cache=self._cache,
                builds=self._builds,
                mounts=(self.signals.mount,),
                opened=self._opened,
            ) as sandbox:
                reward = self._config.judge.reward
                tell(
                    run_standby(
                        sandbox, self._task, self._rules, awaited=awaited, reward=reward, log=self._log, reported=tell
                    )
                )
            self._released.wait(CLOSING_S)  # the log is still to be copied
        finally:
            remove_scratch(self._folder)

    def _opened(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        if self._closed.is_set():
            sandbox.close()

    def _prepare(self, spare: Spare) -> None:
        """Oracle and baselines take their places on the only device while nobody else measures on it."""
        if not self._work.wait_until(lambda: self.signals.has("idle") or self._taken) or self._taken:
            return
        with contextlib.suppress(Interrupted, AgentError), spare(lambda: not self.stands) as variables:
            if self.stands:
                self._told = variables
                self.signals.tell("device", variables)
                self._work.wait_until(lambda: self.signals.has("prepared") or not self.stands)

    def _tell_device(self, variables: Mapping[str, str]) -> None:
        if not self._awaits_device:
            return
        if self._preparation is not None:
            self._preparation.wait_until(lambda: False)
        if self._told is None:
            self.signals.tell("device", variables)
        elif dict(self._told) != dict(variables):
            raise OSError("it was prepared on another GPU")

    def _keep_log(self, log: Path | None) -> None:
        if log is not None:
            with contextlib.suppress(OSError):
                shutil.copyfile(self._log, log)
        self._released.set()


def _report(wanted: Wanted, result: ExecResult, timeout_s: float) -> VerifyReport | ProfileReport:
    def parsed() -> VerifyReport | ProfileReport:
        if wanted == "verify":
            return parse_report(wanted, result, VerifyReport, timeout_s)
        return parse_report(wanted, result, ProfileReport, timeout_s)

    if result.status == "oom":
        return parsed()  # raises what a tool without a stand-by would
    try:
        report = parsed()
    except NoReport as error:
        raise NotStanding from error
    if report.status == "error":
        raise NotStanding
    return report


Compile = Callable[[Opened, Callable[[], bool]], object]
"""Makes objects for the judge of the best submission; is told when to leave, and tells of its sandboxes."""


class Reserve:
    """What is done beside the model's thinking: builds in one folder, a tool that stands by, objects for the judge."""

    def __init__(
        self,
        workspace: Path,
        start: Callable[[Path], Standby] | None,
        compile_best: Compile | None = None,
        *,
        target: Target = "cpu",
    ) -> None:
        """`start` gets the folder of builds; None: nothing ever stands by. Raises SandboxError (disk full)."""
        self._workspace = workspace
        self._start = start
        self._places = _places[target]
        self._compile_best = compile_best
        self._compiling: _Compiling | None = None
        self._scratch = make_scratch({})
        self._current: Standby | None = None
        self._leaving: list[Standby] = []
        self._has_place = False
        self.builds = self._scratch / "builds"
        self.builds.mkdir()
        self.builds.chmod(0o755)
        self.wanted = False

    def prepare(self) -> None:
        """Start one, where the tools are in use and this machine has room for it."""
        if self._start is None or not self.wanted or (self._current is not None and self._current.stands):
            return
        self._drop()
        if _spare_memory_bytes() < LEAST_MEMORY_BYTES or not self._places.acquire(blocking=False):
            return
        self._has_place = True
        try:
            self._current = self._start(self.builds)
        except AgentError:
            self._drop()

    def wait(self, *, timeout_s: float) -> bool:
        """Until a tool waits for nothing but a submission; whether one does."""
        deadline = time.monotonic() + timeout_s
        while (current := self._current) is not None and current.stands and time.monotonic() < deadline:
            if current.signals.has("prepared"):
                return True
            time.sleep(POLL_S)
        return False

    def serve(
        self, wanted: Wanted, *, variables: Mapping[str, str], timeout_s: float, log: Path
    ) -> VerifyReport | ProfileReport | None:
        """None where none stands by, or where it has fallen over. Raises NoReport."""
        if self._current is None:
            return None
        try:
            return self._current.serve(wanted, self._workspace, variables=variables, timeout_s=timeout_s, log=log)
        except NotStanding:
            return None
        finally:
            self._drop()

    def take(self) -> Standby | None:
        """The tool that stands by, for the judge; whoever takes it closes it. The folder of builds may go then."""
        current = self._current
        if current is not None:
            current.wait_open()
        if current is None or not current.stands:
            return None
        self._current = None
        self._drop()
        return current

    def best_changed(self) -> None:
        """The judge will build what is the best now: slow sources are compiled for it, unless some are already."""
        if self._compile_best is not None and (self._compiling is None or self._compiling.work.is_known):
            self._compiling = _Compiling(self._compile_best)

    def be_quiet(self) -> None:
        """Something is about to be timed."""
        if self._compiling is not None:
            self._compiling.end()

    def abandon(self) -> None:
        """End what runs; from any thread."""
        if (current := self._current) is not None:
            current.close()

    def close(self) -> None:
        self.be_quiet()
        self._drop()
        for standby in self._leaving:
            standby.join()
        remove_scratch(self._scratch)

    def _drop(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.close()
            self._leaving = [standby for standby in self._leaving if not standby.is_gone] + [current]
        if self._has_place:
            self._has_place = False
            self._places.release()


class _Compiling:
    """Compilers at work, in sandboxes that can be closed."""

    def __init__(self, work: Compile) -> None:
        self._ended = threading.Event()
        self._opened: list[Sandbox] = []
        self.work = Ahead[object](lambda tell: tell(work(self._note, self._ended.is_set)))

    def _note(self, sandbox: Sandbox) -> None:
        self._opened.append(sandbox)
        if self._ended.is_set():
            sandbox.close()

    def end(self) -> None:
        self._ended.set()
        if not self.work.is_known:
            for sandbox in tuple(self._opened):
                sandbox.close()
        self.work.join(timeout_s=CLOSING_S)


def _spare_memory_bytes() -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0
