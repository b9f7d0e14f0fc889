"""Episodes that a trainer drives: the same events and the same end as in the loop, and every way to leave."""

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tiny import TASK, calling, configuration, write_submission

from agent.backends.base import Reply, ToolCall
from agent.config import load_config
from agent.environments.kernel_env import KernelEnv, Step, Tokens
from agent.errors import ConfigError, SandboxError, TaskError
from agent.loop.control import SilentListener
from agent.loop.episode import resume_episode, run_episode
from agent.loop.opening import Seed
from agent.tasks.task import Task, text_sha256
from agent.trajectory.events import Event, MessageEvent, ObservationEvent, ReplyEvent, RunEnd, RunStart, StopEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.stored import read_ending

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]
MakeEnv = Callable[..., KernelEnv]


@pytest.fixture
def make_env(tmp_path: Path) -> Iterator[MakeEnv]:
    with contextlib.ExitStack() as stack:

        def make(*settings: str, task: Task = TASK, **options: Any) -> KernelEnv:
            env = KernelEnv(task, config=configuration(*settings), output=tmp_path / "runs", **options)
            return stack.enter_context(env)

        yield make


def events_of(env: KernelEnv) -> list[Event]:
    assert env.run_dir is not None
    return list(read_events(env.run_dir / "events.jsonl"))


def essence(events: list[Event]) -> list[tuple[object, ...]]:
    """Everything that a policy sees or causes."""
    found: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case MessageEvent():
                found.append((event.origin, event.message))
            case ReplyEvent():
                found.append((event.turn, event.reply.text, event.reply.calls, event.format_error))
            case ObservationEvent():
                found.append((event.call_id, event.text, event.status, event.exit_code))
            case StopEvent() | RunEnd():
                found.append((event.type, event.reason))
            case _:
                found.append((event.type,))
    return found


TURNS = (
    Reply(calls=(ToolCall(id="", name="bash", arguments='{"command": "echo out; exit 3"}'),)),
    Reply(text="only words"),
    Reply(
        calls=(
            ToolCall(id="x", name="write_file", arguments='{"path": "a", "content": "1"}'),
            ToolCall(id="x", name="python", arguments="{}"),
            ToolCall(id="x", name="edit_file", arguments='{"path": "a", "old": "1", "new": "2"}'),
        )
    ),
    Reply(calls=(ToolCall(id="y", name="bash", arguments='{"command": "l'),), finish_reason="length"),
    Reply(calls=(ToolCall(id="z", name="compile", arguments="{}"),)),
    Reply(calls=(ToolCall(id="", name="submit", arguments="{}"), ToolCall(id="", name="submit", arguments="{}"))),
)


class Scripted:
    name = "scripted"

    def chat(self, messages: Any, tools: Any) -> Reply:
        return TURNS[sum(message.role == "assistant" for message in messages)]

    def describe(self) -> dict[str, Any]:
        return {"kind": "scripted"}

    def close(self) -> None:
        pass


def test_a_trainers_episode_is_the_loops_episode(make_env: MakeEnv, tmp_path: Path) -> None:
    settings = ("limits.turns=7",)
    config = configuration(*settings)
    folder = RunFolder.create(tmp_path / "loop", TASK, config)
    looped = run_episode(config, TASK, folder, backend=Scripted(), listener=SilentListener())
    env = make_env(*settings, policy={"model": "tiny"})
    seen = [list(env.reset().messages)]
    steps = []
    for turn in TURNS:
        steps.append(env.step(turn))
        seen.append(list(steps[-1].observation.new))
    expected, found = list(read_events(folder.events)), events_of(env)
    assert essence(found) == essence(expected)
    assert [step.done for step in steps] == [False] * 5 + [True]
    assert [step.reward for step in steps] == [0.0] * 5 + [-1.0]
    assert env.result is not None and (env.result.reason, env.result.reward) == (looped.reason, looped.reward)
    assert (tmp_path / "loop" / folder.run_id / "verdict.json").read_text() == (
        env.result.run_dir / "verdict.json"
    ).read_text()

    told = [message for part in seen for message in part]
    whole = [message for message in steps[-1].observation.messages if message.role != "assistant"]
    assert told == whole
    assert isinstance(found[0], RunStart) and found[0].backend == {"kind": "policy", "model": "tiny"}
    info = steps[-1].info
    assert (info["reason"], info["turn"], info["error"]) == ("submitted", 6, None)
    assert info["verdict"]["verdict"] == "rejected"
    assert info["run_dir"] == str(env.run_dir)


def test_each_form_of_a_message_plays_and_tokens_are_recorded(make_env: MakeEnv) -> None:
    env = make_env()
    first = env.reset()
    assert [message.role for message in first.new] == ["system", "user"]
    assert first.openai_messages()[1]["content"].startswith("Make this module faster")
    assert first.openai_tools()[0]["function"]["name"] == "bash"
    assert "```action" in first.text_messages()[0]["content"]
    step = env.step(calling("bash", command="echo one"))
    assert step.observation.openai_messages(new=True) == [
        {"role": "tool", "tool_call_id": "c", "content": "Exit code 0.\none"}
    ]
    assert env.step("```action bash\necho two\n```").observation.text == "Exit code 0.\ntwo"
    tokens = Tokens(prompt_ids=[1, 2, 3], completion_ids=[4, 5], logprobs=[-0.1, -0.2])
    step = env.step(calling("bash", command="echo three"), tokens=tokens)
    assert step.info["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "cost_usd": None}
    reply = [event.reply for event in events_of(env) if isinstance(event, ReplyEvent)][-1]
    assert (reply.prompt_token_ids, reply.completion_token_ids, reply.logprobs) == ((1, 2, 3), (4, 5), (-0.1, -0.2))
    with pytest.raises(ConfigError, match="no assistant message"):
        env.step(None)
    end = env.finish("enough")
    assert (end.done, end.reward, end.info["reason"], end.info["detail"]) == (True, -1.0, "rollout_end", "enough")
    assert end.observation.new == ()


def test_a_policy_that_never_acts_is_stopped(make_env: MakeEnv) -> None:
    env = make_env()
    env.reset()
    for number in (1, 2):
        step = env.step(f"I think, {number}")
        assert not step.done
        (complaint,) = step.observation.new
        assert complaint.role == "user" and "held no action" in complaint.content
        assert step.info["format_errors"] == number
    step = env.step({"role": "assistant", "content": "so"})
    assert (step.done, step.reward, step.info["reason"]) == (True, -1.0, "format_errors")


def test_without_an_episode_a_step_is_an_error(make_env: MakeEnv) -> None:
    env = make_env("limits.turns=1")
    with pytest.raises(ConfigError, match="call reset"):
        env.step("x")
    env.reset()
    first = env.run_dir
    assert env.step(calling("bash", command="true")).info["reason"] == "turns"
    assert (env.running, env.run_dir) == (False, first)
    for use in (lambda: env.step("x"), env.finish):
        with pytest.raises(ConfigError, match="call reset"):
            use()
    env.reset()
    assert env.running and env.run_dir != first
    assert first is not None and read_ending(RunFolder(first)) is not None


def test_reset_leaves_the_episode_under_way_as_it_is(make_env: MakeEnv) -> None:
    env = make_env()
    env.reset()
    env.step(calling("bash", command="true"))
    left = RunFolder.open(Path(env.step(calling("bash", command="echo 1")).info["run_dir"]))
    env.reset()
    with left.lock():
        assert read_ending(left) is None
        assert isinstance(list(read_events(left.events))[-1], ObservationEvent)
    env.close()
    env.close()
    assert not env.running


def test_what_an_environment_left_the_loop_can_go_on_with(make_env: MakeEnv) -> None:
    env = make_env()
    env.reset()
    env.step(TURNS[0])
    env.close()
    assert env.run_dir is not None
    result = resume_episode(RunFolder.open(env.run_dir), backend=Scripted(), listener=SilentListener())
    assert (result.reason.value, result.turns, result.reward) == ("submitted", 6, -1)


def test_closing_ends_a_running_step(make_env: MakeEnv) -> None:
    env = make_env()
    env.reset()
    threading.Timer(1.0, env.close).start()
    began = time.monotonic()
    step = env.step(calling("bash", command="sleep 100"))
    assert time.monotonic() - began < 60
    assert (step.done, step.reward, step.info["reason"], step.info["error"]) == (True, None, "cancelled", None)


def test_a_lost_sandbox_is_never_scored(make_env: MakeEnv) -> None:
    env = make_env()
    env.reset()
    assert env._session is not None
    threading.Timer(0.5, env._session.bench.sandbox.close).start()
    step = env.step(calling("bash", command="sleep 100"))
    assert (step.done, step.reward, step.info["reason"]) == (True, None, "sandbox_died")
    assert step.info["error"]["type"] == "SandboxError"
    assert [message.role for message in step.observation.new] == ["tool"]


def test_a_workspace_that_vanishes_is_never_scored(make_env: MakeEnv) -> None:
    env = make_env()
    env.reset()
    assert env.run_dir is not None
    shutil.rmtree(env.run_dir / "workspace")
    step = env.step(calling("bash", command="true"))
    assert (step.done, step.reward, step.info["error"]["type"]) == (True, None, "SandboxError")
    assert step.info["judge_errors"]
    ending = read_ending(RunFolder(env.run_dir))
    assert ending is not None and not ending.settled


def test_a_reply_after_the_time_is_up_does_not_count(make_env: MakeEnv) -> None:
    env = make_env("limits.time_s=30", "limits.judge_reserve_s=0")
    env.reset()
    assert env._session is not None
    env._session.clock._began -= 40
    step = env.step(calling("bash", command="true"))
    assert (step.done, step.info["reason"], step.info["turn"]) == (True, "time", 0)
    assert step.reward == -1.0


def test_many_at_once(make_env: MakeEnv) -> None:
    envs = [make_env("limits.turns=3") for _ in range(6)]

    def play(number: int) -> Step:
        envs[number].reset()
        for turn in range(2):
            answer = envs[number].step(calling("bash", command=f"sleep 0.2; echo {number}.{turn} > mine; cat mine"))
            assert answer.observation.text == f"Exit code 0.\n{number}.{turn}"
        return envs[number].step(calling("bash", command="cat mine"))

    with ThreadPoolExecutor(6) as pool:
        steps = list(pool.map(play, range(6)))
    assert [step.observation.text for step in steps] == [f"Exit code 0.\n{number}.1" for number in range(6)]
    assert {(step.reward, step.info["reason"]) for step in steps} == {(-1.0, "turns")}
    assert len({step.info["run_dir"] for step in steps}) == 6


def test_what_cannot_begin_raises_and_leaves_nothing(make_env: MakeEnv, tmp_path: Path) -> None:
    text = TASK.text.replace("return []", "raise RuntimeError('kaputt')")
    env = make_env(task=Task(path=TASK.path, name="broken", text=text, sha256=text_sha256(text)))
    with pytest.raises(TaskError, match="kaputt"):
        env.reset()
    assert list((tmp_path / "runs").iterdir()) == []
    assert not env.running
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu", "sandbox.python=/nowhere/python"])
    with pytest.raises(SandboxError, match="/nowhere/python"):
        KernelEnv(TASK, config=config, output=tmp_path / "runs").reset()
    assert list((tmp_path / "runs").iterdir()) == []
    with pytest.raises(ConfigError, match="nobody to confirm"):
        KernelEnv(TASK, config=configuration("run.confirm=true"))


class Counting:
    """A device that is always free, counted."""

    def __init__(self) -> None:
        self.leases = 0

    @contextlib.contextmanager
    def lease(self, *, leave: Callable[[], bool]) -> Iterator[dict[str, str]]:
        self.leases += 1
        yield {}


def test_a_right_submission_has_the_judges_reward(make_env: MakeEnv, tmp_path: Path) -> None:
    device = Counting()
    earlier = write_submission(tmp_path / "earlier")
    env = make_env(device=device, seed=Seed(earlier, "A plain loop was tried."))
    opening = env.reset().new
    assert [message.role for message in opening] == ["system", "user", "user"]
    assert "A plain loop was tried." in opening[2].content
    assert not env.step(calling("submit")).done
    step = env.step(calling("submit", summary="as it was"))
    assert step.done and step.reward is not None and step.reward >= 1.0, step.info
    assert device.leases == 1
    assert env.run_dir is not None
    record = json.loads((env.run_dir / "verdict.json").read_text())
    assert record["final"] == step.info["verdict"]
    assert record["reward"] == step.reward


def test_a_policy_is_offered_the_actions_of_its_target() -> None:
    offered = {
        target: {tool.name for tool in KernelEnv(TASK, config=load_config(flags={"judge.target": target})).tools}
        for target in ("cpu", "cuda")
    }
    assert offered["cuda"] - offered["cpu"] == {"inspect", "sanitize"}
