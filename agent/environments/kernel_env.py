"""KernelEnv: an episode for trainers that own the policy. reset() opens it, step(assistant message) plays one turn.

Actions, limits, complaints, snapshots, judge and reward are the loop's own functions (agent.loop.steps, play, episode):
what a policy meets here is what a backend meets in `agent optimize`, and each episode leaves an ordinary run folder.
Covers: many environments in one process and calls from any thread (those of one environment come one after another).
Time between two steps counts against limits.time_s, as a backend's does: 0 there where a trainer's batches are slow.
Does not cover: continuing a killed run; `agent.loop.episode.resume_episode` does that with a backend.
"""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent.backends.base import Message, Reply, ToolSchema
from agent.config import Config
from agent.environments.device import shared_device
from agent.environments.incoming import Tokens, to_reply
from agent.environments.observation import Observation, Step
from agent.errors import AgentError, BackendError, ConfigError, SandboxError
from agent.judging.target import resolve_target
from agent.loop.actions import tool_schemas
from agent.loop.control import Controls, Device, Listener, SilentListener
from agent.loop.episode import Episode, EpisodeResult
from agent.loop.limits import Stop, check
from agent.loop.opening import Seed
from agent.loop.play import attempt, conclude
from agent.loop.session import Session
from agent.loop.steps import settle, take_turn
from agent.loop.waiting import Interrupted
from agent.tasks.task import Task, load_task
from agent.trajectory.events import StopReason
from agent.trajectory.folder import RunFolder

__all__ = ["KernelEnv", "Observation", "Step", "Tokens"]


class KernelEnv:
    """One task, one episode at a time. A context manager; `close` frees the sandbox, from any thread, also mid-step."""

    def __init__(
        self,
        task: Task | Path | str,
        *,
        config: Config | None = None,
        output: Path | str | None = None,
        device: Device | None = None,
        listener: Listener | None = None,
        seed: Seed | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        """`output`: folder for the runs (default: config.run.output). `policy`: what to record about the model.
        `device`: leased for what is timed; by default the machine's, so that one measurement runs on it at a time.

        Raises TaskError where `task` is none, ConfigError where the configuration needs a person.
        """
        self.task = task if isinstance(task, Task) else load_task(Path(task))
        self.config = config or Config()
        if self.config.run.confirm:
            raise ConfigError("an environment has nobody to confirm actions", hint="set run.confirm=false")
        self.output = Path(output if output is not None else self.config.run.output)
        self.device, self.listener, self.seed = device, listener or SilentListener(), seed
        self.policy = _OutsidePolicy(policy or {})
        self.tools = tool_schemas(resolve_target(self.config.judge))
        self.result: EpisodeResult | None = None
        self.run_dir: Path | None = None
        """The present or the last episode's run folder."""
        self._lock = threading.RLock()
        self._controls = Controls()
        self._episode: Episode | None = None
        self._session: Session | None = None

    def reset(self) -> Observation:
        """Leave the present episode, if any, and open a new one in a new run folder.

        Raises SandboxError, JudgeError, TaskError, ConfigError or RecordError where it cannot begin.
        """
        with self._lock:
            self._leave()
            self.result, self._controls = None, Controls()
            device = self.device or shared_device(self.config.judge)
            folder = RunFolder.create(self.output, self.task, self.config)
            episode = Episode(
                self.config,
                self.task,
                folder,
                backend=self.policy,
                listener=self.listener,
                controls=self._controls,
                device=device,
            )
            with contextlib.ExitStack() as stack:
                stack.enter_context(episode)
                stack.callback(episode.discard_unbegun)
                self._session = self._begin(episode)
                stack.pop_all()
            self._episode, self.run_dir = episode, folder.path
            return self._observe(0)

    def step(self, message: Any, *, tokens: Tokens | None = None, finish_reason: str | None = None) -> Step:
        """One turn of the policy: all its calls are executed, in order, before this returns; at the end it is judged.

        `message`: an OpenAI-style dict or chat completion, a Message, a Reply, or a str (fenced action blocks).
        Raises ConfigError when there is no episode under way, or `message` is no assistant message. Trouble with the
        infrastructure ends the episode: done, reward None, and info["error"] says what it was.
        """
        with self._lock:
            session = self._running()
            protocol = self.config.backend.tool_protocol
            turn = session.ledger.turns + 1
            reply = to_reply(
                message, turn=turn, tools=self.tools, protocol=protocol, tokens=tokens, finish_reason=finish_reason
            )
            seen = len(session.log.conversation.messages) + 1
            stop, error = attempt(session, lambda: take_turn(session, reply))
            if stop is None and not session.controls.quit_requested:
                return Step(self._observe(seen), 0.0, False, _progress(session))
            return self._finish(stop, error, seen)

    def finish(self, detail: str = "") -> Step:
        """End the episode now and judge what there is: for trainers that end a rollout by their own rules."""
        with self._lock:
            session = self._running()
            stop = check(session.config.limits, session.ledger, session.clock.elapsed_s())
            seen = len(session.log.conversation.messages)
            return self._finish(stop or Stop(StopReason.ROLLOUT_END, detail), None, seen)

    def close(self) -> None:
        """Free the sandbox; an episode under way is left unjudged, a running step ends soon. Safe to repeat."""
        self._controls.request_quit()
        with self._lock:
            self._leave()

    @property
    def running(self) -> bool:
        """Whether an episode is under way."""
        return self._session is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _begin(self, episode: Episode) -> Session:
        try:
            session = episode.open(self.seed)
        except Interrupted:
            raise ConfigError("the environment was closed while it was starting") from None

        def begin() -> None:
            episode.begin(session)
            settle(session)

        stop, error = attempt(session, begin)
        if stop is not None and error is not None:
            conclude(session, stop)
            episode.finish(stop, None)
            raise error if isinstance(error, AgentError) else SandboxError(stop.detail) from error
        return session

    def _running(self) -> Session:
        if self._session is None:
            raise ConfigError("there is no episode under way", hint="call reset() first")
        return self._session

    def _observe(self, seen: int) -> Observation:
        messages = tuple(self._running().log.conversation.messages)
        return Observation(messages=messages, new=messages[seen:], tools=self.tools)

    def _finish(self, stop: Stop | None, error: Exception | None, seen: int) -> Step:
        session, episode = self._running(), self._episode
        assert episode is not None
        try:
            if stop is not None:
                conclude(session, stop)
            observation = self._observe(seen)
            result = self.result = episode.finish(stop, error)
        finally:
            self._leave()
        reward = None if result.reward is None else float(result.reward)
        return Step(observation, reward, True, {**_progress(session), **_ending(result, error)})

    def _leave(self) -> None:
        episode, self._episode, self._session = self._episode, None, None
        if episode is not None:
            episode.close()


class _OutsidePolicy:
    """Stands in a run's record for a model that is asked by its trainer."""

    name = "policy"

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about = dict(about)

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "policy", **self._about}

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        raise BackendError("the trainer asks its policy itself and hands the answer to step()", kind="bad_request")

    def close(self) -> None:
        pass


def _progress(session: Session) -> dict[str, Any]:
    ledger = session.ledger
    return {
        "run_dir": str(session.folder.path),
        "turn": ledger.turns,
        "format_errors": ledger.format_errors,
        "usage": {
            "prompt_tokens": ledger.prompt_tokens,
            "completion_tokens": ledger.completion_tokens,
            "cost_usd": ledger.total_cost_usd,
        },
    }


def _ending(result: EpisodeResult, error: Exception | None) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "reason": result.reason.value,
        "detail": result.detail,
        "verdict": verdict.model_dump(mode="json") if verdict else None,
        "error": _trouble(result, error),
        "judge_errors": list(result.judge_errors),
    }


def _trouble(result: EpisodeResult, error: Exception | None) -> dict[str, str] | None:
    """What kept the reward from being known, where it was not a person or the trainer who left."""
    if result.reward is not None or (result.reason is StopReason.CANCELLED and not result.judge_errors):
        return None
    if error is not None:
        return {"type": type(error).__name__, "message": str(error)}
    what = "; ".join(result.judge_errors) or result.detail or "the judge could not decide"
    return {"type": "JudgeError", "message": what}
