"""One task from start to verdict: prepare, run the graph, judge whatever stopped it, record, return.

Everything is in the log before it counts, so that `resume_episode` goes on wherever a killed process stopped. Whoever
owns the policy (the graph here, a trainer in agent/environments) plays between the same `Episode.open` and `finish`.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from agent import __version__
from agent.backends.base import Backend
from agent.config import Config
from agent.errors import AgentError, BackendError, ConfigError, RecordError
from agent.judging.cache import inspect, warm
from agent.judging.judge import Standing
from agent.judging.objects import keep_objects
from agent.judging.sandboxes import Opened, episode_spec
from agent.judging.target import resolve_target
from agent.judging.tool_runs import Rules
from agent.loop.actions import tool_schemas
from agent.loop.control import Controls, Device, Listener, Operator, Phase, Status
from agent.loop.conversation import Conversation
from agent.loop.judgement import Judgement, judge_run, recorded_judgement, verdict_record
from agent.loop.keeping import restore_best
from agent.loop.ledger import Ledger
from agent.loop.limits import Clock, Stop
from agent.loop.opening import Seed, first_messages, keep_seed, lay_out, opening_length
from agent.loop.play import play
from agent.loop.result import EpisodeResult, reward_of
from agent.loop.session import Log, Session
from agent.loop.standby import Reserve, Standby
from agent.loop.steps import recover, redo
from agent.loop.waiting import Interrupted, leased, wait_for_sandboxes
from agent.loop.window import Window, fitted
from agent.loop.workbench import LOGS, Workbench
from agent.sandbox.base import Mount, Sandbox
from agent.sandbox.labels import RUN
from agent.sandbox.open import choose_kind, open_sandbox, pinned
from agent.tasks.task import Task
from agent.trajectory.events import MessageEvent, Resumed, RunEnd, RunStart, StopReason
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.writer import EventWriter

__all__ = ["Episode", "EpisodeResult", "resume_episode", "run_episode"]


def run_episode(
    config: Config,
    task: Task,
    folder: RunFolder,
    *,
    backend: Backend,
    listener: Listener,
    operator: Operator | None = None,
    controls: Controls | None = None,
    device: Device | None = None,
    seed: Seed | None = None,
    reopen: bool = False,
) -> EpisodeResult:
    """Run or go on with an episode in `folder`. `device` is leased for what is timed; `seed` is what it begins with.
    `reopen`: a run that something from outside has stopped (a person, a full disk) goes on, judged already or not.

    Raises TaskError, ConfigError, SandboxError or JudgeError when it cannot begin (nothing is recorded then), and
    BackendError when the model could not be asked even once. Later trouble is a stop reason; what there is, is judged.
    """
    if config.run.confirm and operator is None:
        raise ConfigError("confirming each action needs somebody to ask", hint="run without --confirm")
    with Episode(
        config,
        task,
        folder,
        backend=backend,
        listener=listener,
        operator=operator,
        controls=controls or Controls(),
        device=device,
    ) as episode:
        try:
            return episode.run(seed, reopen=reopen)
        except AgentError:
            episode.discard_unbegun()
            raise


def resume_episode(
    folder: RunFolder,
    *,
    backend: Backend,
    listener: Listener,
    operator: Operator | None = None,
    controls: Controls | None = None,
    device: Device | None = None,
    seed: Seed | None = None,
) -> EpisodeResult:
    """Go on where the log ends: in the loop, before the judge, or (finished) with the recorded result at once.

    `seed` matters only to a run that died before it had kept its own.
    """
    return run_episode(
        folder.config(),
        folder.task(),
        folder,
        backend=backend,
        listener=listener,
        operator=operator,
        controls=controls,
        device=device,
        seed=seed,
    )


class Episode:
    """One process' part of an episode, between lock and unlock: open, play by whoever owns the policy, finish."""

    def __init__(
        self,
        config: Config,
        task: Task,
        folder: RunFolder,
        *,
        backend: Backend,
        listener: Listener,
        operator: Operator | None = None,
        controls: Controls,
        device: Device | None = None,
    ) -> None:
        self.config, self.task, self.folder = fitted(config), task, folder
        self.backend, self.listener, self.operator, self.controls = backend, listener, operator, controls
        self.device = device
        self.seed: Seed | None = None
        self.rules = Rules.of(config.judge, target=resolve_target(config.judge))
        self._held, self._sandboxes = contextlib.ExitStack(), contextlib.ExitStack()
        self._kept: Reserve | None = None

    def __enter__(self) -> Self:
        """Raises RecordError where another process holds the run, or where it cannot be read or written."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.folder.lock())
            restore_best(self.folder)
            self.log = stack.enter_context(_open_log(self.folder, self.listener))
            self._held = stack.pop_all()
        self.clock = Clock(earlier_s=self.log.ledger.active_s)
        self._old_stop = self.log.ledger.stop is not None
        self._reopens = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Free the sandbox, the log and the lock; safe to repeat. What is recorded stays."""
        try:
            self.close_sandbox()
        finally:
            self._held.close()

    def close_sandbox(self) -> None:
        self._sandboxes.close()

    def discard_unbegun(self) -> None:
        """Remove the folder of a run that has no event."""
        if self.log.ledger.started is None:
            self.close_sandbox()
            self.folder.discard()

    def run(self, seed: Seed | None, *, reopen: bool = False) -> EpisodeResult:
        """From where the log ends to the result, with the backend's replies."""
        ledger = self.log.ledger
        if ledger.started is not None and ledger.started.task_sha256 != self.task.sha256:
            raise ConfigError(
                f"{self.folder.path} is the run of another task", hint="resume_episode takes the run's own"
            )
        ended = ledger.end or ledger.stop
        if reopen and ended is not None and ended.reason.from_outside:
            self._reopens, self._old_stop = True, False
            self.clock = Clock(earlier_s=ledger.played_s)
        elif ledger.end is not None:
            return self._recorded(ledger.end)
        elif ledger.stop is not None:
            self._pin()
            self.log.record(Resumed)
            return self._judge(Stop(ledger.stop.reason, ledger.stop.detail))
        try:
            session = self.open(seed)
            stop, error = play(session, lambda: self.begin(session))
        except Interrupted:
            stop, error = None, None
        return self.finish(stop, error)

    def open(self, seed: Seed | None = None) -> Session:
        """Everything that acting needs: workspace, warm cache, sandbox. Raises TaskError, SandboxError, JudgeError."""
        self.seed = keep_seed(self.folder, seed if self.log.ledger.started is None else None)
        self._pin()
        cache = self._ready_cache()
        self._kept = reserve = self._reserve(cache)
        sandbox = self._open_sandbox(cache, reserve)
        self._sandboxes.callback(sandbox.close)
        return Session(
            config=self.config,
            folder=self.folder,
            log=self.log,
            backend=self.backend,
            bench=Workbench(sandbox, self.task, self.rules, self.config.limits, self.folder.logs, reserve),
            listener=self.listener,
            operator=self.operator,
            controls=self.controls,
            clock=self.clock,
            device=self.device,
            window=Window.of(self.config.backend, tool_schemas(self.rules.target)),
        )

    def begin(self, session: Session) -> None:
        """The first events of a run, or the mark of a resumed one; what a crash left out is made up for."""
        recovery = None
        if session.ledger.started is None:
            session.log.record(
                RunStart,
                run_id=self.folder.run_id,
                task_sha256=self.task.sha256,
                agent_version=__version__,
                backend=dict(self.backend.describe()),
                sandbox=_described(session.bench.sandbox),
                tools=tool_schemas(self.rules.target),
            )
        else:
            recovery = recover(session)
            lost = (recovery.call.id,) if recovery and recovery.lost else ()
            session.log.record(Resumed, pending=lost, reopens=self._reopens)
            if self._reopens:  # after the log says so: on a full disk the old ending stays
                self.folder.forget_ending()
        if session.ledger.messages < opening_length(self.seed):
            opening = first_messages(self.config, self.task, self.rules, session.bench.sandbox, seed=self.seed)
            for message in opening[session.ledger.messages :]:
                session.log.record(MessageEvent, message=message)
        if recovery is not None:
            redo(session, recovery)

    def finish(self, stop: Stop | None, error: Exception | None) -> EpisodeResult:
        """Judge and record after a recorded stop; None: the run is left to be resumed.

        Raises `error` where it is the BackendError that kept the model from being asked even once.
        """
        with contextlib.ExitStack() as stack:
            standing = self._kept.take() if stop is not None and self._kept is not None else None
            if standing is not None:
                stack.callback(standing.join)
                stack.callback(standing.close)
            self.close_sandbox()
            if stop is None:
                return self.left()
            if isinstance(error, BackendError) and not self.log.ledger.turns:
                self._end(stop, Judgement(), None)
                raise error
            return self._judge(stop, standing.judge if standing else None)

    def _pin(self) -> None:
        sandbox = pinned(self.config.sandbox, target=self.rules.target)
        self.config = self.config.model_copy(update={"sandbox": sandbox})

    def _ready_cache(self) -> Path:
        if self.log.ledger.started is None:
            self._status("preparing", "inspecting the task")
            wait_for_sandboxes(lambda opened: inspect(self.config, self.task, opened=opened), leave=self._leaving)
            lay_out(self.folder.workspace, self.task, seed=self.seed)
        self._status("preparing", "warming the cache")
        return wait_for_sandboxes(lambda opened: warm(self.config, self.task, opened=opened), leave=self._leaving)

    def _reserve(self, cache: Path) -> Reserve | None:
        """None where a tool beside the sandbox would be within reach of what runs in it."""
        kind = choose_kind(self.config.sandbox, target=self.rules.target)
        if kind == "none":
            return None
        spare = getattr(self.device, "spare", lambda: None)()

        def start(builds: Path) -> Standby:
            return Standby(self.config, self.task, self.rules, cache=cache, builds=builds, spare=spare)

        def compile_best(opened: Opened, leave: Callable[[], bool]) -> object:
            return keep_objects(self.config, self.folder.best, cache, opened=opened, leave=leave)

        starts = start if self.config.sandbox.standby else None
        reserve = Reserve(self.folder.workspace, starts, compile_best, target=self.rules.target)
        self._sandboxes.callback(reserve.close)
        return reserve

    def _open_sandbox(self, cache: Path, reserve: Reserve | None) -> Sandbox:
        self._status("preparing", "starting the sandbox")
        spec = episode_spec(
            self.config,
            target=self.rules.target,
            workspace=self.folder.workspace,
            cache=cache,
            mounts=(Mount(self.folder.logs, LOGS),),
            builds=reserve.builds if reserve else None,
            labels={RUN: self.folder.run_id},
        )
        return open_sandbox(self.config.sandbox, spec, target=self.rules.target)

    def _judge(self, stop: Stop, standing: Standing | None = None) -> EpisodeResult:
        self._status("judging", "best and final submission")
        try:
            judgement = judge_run(
                self.config,
                self.task,
                self.folder,
                self.log,
                disk_full=stop.reason is StopReason.DISK_FULL,
                leave=self._quitting,
                lease=self._leased,
                standing=standing,
            )
        except Interrupted:
            return self.left()
        reward = reward_of(stop.reason, judgement.best, judgement.final, judged=not judgement.errors)
        with contextlib.suppress(RecordError):
            self.folder.write_json("verdict.json", verdict_record(stop.reason, reward, judgement))
        self._end(stop, judgement, reward)
        self._status("done", stop.reason.value)
        return self._result(stop, judgement, reward)

    @contextlib.contextmanager
    def _leased(self) -> Iterator[Mapping[str, str]]:
        if self.device is not None:
            self._status("judging", "waiting for the device")
        with leased(self.device, clock=self.clock, leave=self._quitting) as lease:
            self._status("judging", "best and final submission")
            yield lease.variables

    def left(self) -> EpisodeResult:
        """Nothing more is recorded: `resume_episode` goes on from what is."""
        self.close_sandbox()
        stop = Stop(StopReason.CANCELLED, "left to be resumed")
        return self._result(stop, recorded_judgement(self.log.ledger), None, finished=False)

    def _leaving(self) -> bool:
        return self.controls.leaving

    def _quitting(self) -> bool:
        return self.controls.quit_requested

    def _end(self, stop: Stop, judgement: Judgement, reward: int | None) -> None:
        """The last event, unless something is still owed: a run whose judgement failed can be resumed to be judged, or
        played on where what stopped it came from outside.
        """
        if judgement.errors:
            return
        ledger = self.log.ledger
        with contextlib.suppress(RecordError):
            self.log.record(
                RunEnd,
                reason=stop.reason,
                reward=reward,
                turns=ledger.turns,
                prompt_tokens=ledger.prompt_tokens,
                completion_tokens=ledger.completion_tokens,
                cost_usd=ledger.total_cost_usd,
                wall_s=self.clock.elapsed_s(),
            )

    def _recorded(self, end: RunEnd) -> EpisodeResult:
        judgement = recorded_judgement(self.log.ledger)
        detail = self.log.ledger.stop.detail if self.log.ledger.stop else ""
        return self._result(Stop(end.reason, detail), judgement, end.reward)

    def _result(
        self,
        stop: Stop,
        judgement: Judgement,
        reward: int | None,
        *,
        finished: bool = True,
    ) -> EpisodeResult:
        ledger = self.log.ledger
        return EpisodeResult(
            run_dir=self.folder.path,
            old_stop=self._old_stop,
            reason=stop.reason,
            reward=reward,
            best=judgement.best,
            final=judgement.final,
            turns=ledger.turns,
            prompt_tokens=ledger.prompt_tokens,
            completion_tokens=ledger.completion_tokens,
            cost_usd=ledger.total_cost_usd,
            wall_s=ledger.end.wall_s if ledger.end else self.clock.elapsed_s(),
            detail=stop.detail,
            judge_errors=tuple(judgement.errors),
            judge_lacked_disk=judgement.full,
            finished=finished,
        )

    def _status(self, phase: Phase, detail: str) -> None:
        self.listener.on_status(Status(phase, detail, self.log.ledger.turns, time.time()))


def _described(sandbox: Sandbox) -> dict[str, str]:
    return {"kind": sandbox.kind, "python": sandbox.python, "description": sandbox.describe()}


@contextlib.contextmanager
def _open_log(folder: RunFolder, listener: Listener) -> Iterator[Log]:
    ledger, conversation = Ledger(), Conversation()
    with EventWriter(folder.events, on_event=listener.on_event) as writer:
        for event in read_events(folder.events):
            ledger.apply(event)
            conversation.apply(event)
        yield Log(writer, ledger, conversation)
