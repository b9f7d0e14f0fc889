"""verifiers' own rollouts of the environment, over HTTP with a scripted OpenAI-compatible server."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers", reason="verifiers is not installed: pip install 'cuda-agent[verifiers]'")

from openai import AsyncOpenAI
from tiny import TASK, TEXT, configuration

from agent.backends import scripted_steps as steps
from agent.backends.scripted_server import ScriptedServer
from agent.environments.for_verifiers import OUTCOME, load_environment
from agent.trajectory.events import ReplyEvent, RunStart
from agent.trajectory.reader import read_events
from agent.trajectory.stored import find_runs, read_ending

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch, pytest.mark.filterwarnings("default")]
SETTINGS = ("sandbox.kind=bubblewrap", "judge.target=cpu")
TURNS = (
    steps.reply("I look.", [("bash", {"command": "echo hello"})]),
    steps.reply("", [("bash", '{"command": "l')]),
    steps.reply("only words"),
    steps.reply("Done.", [("submit", {}), ("submit", {})]),
)
Serve = Callable[..., ScriptedServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    configuration()
    with ExitStack() as stack:

        def start(turns: tuple[Any, ...] = TURNS) -> ScriptedServer:
            def answer(body: Mapping[str, Any]) -> Any:
                return turns[sum(message["role"] == "assistant" for message in body["messages"])]

            return stack.enter_context(ScriptedServer(answer))

        yield start


def generate(env: Any, server: ScriptedServer, *, rollouts: int = 1) -> list[dict[str, Any]]:
    async def run() -> Any:
        inputs = env.get_dataset().select([0] * rollouts)
        async with AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
            return await env.generate(inputs, client, "scripted", state_columns=[OUTCOME], independent_scoring=True)

    found: list[dict[str, Any]] = asyncio.run(run())["outputs"]
    return found


def test_rollouts_side_by_side(serve: Serve, tmp_path: Path) -> None:
    env = load_environment([TASK], settings=SETTINGS, output=tmp_path)
    server = serve()
    outputs = generate(env, server, rollouts=3)
    assert len({output[OUTCOME]["run_dir"] for output in outputs}) == 3
    for output in outputs:
        assert (output["reward"], output["stop_condition"]) == (-1.0, "has_final_env_response")
        assert output["metrics"] == {"judge_reward": -1.0, "num_turns": 4.0}
        assert (output[OUTCOME]["reason"], output["error"]) == ("submitted", None)
        assert [message["role"] for message in output["prompt"]] == ["system", "user"]
        roles = [message["role"] for message in output["completion"]]
        assert roles == ["assistant", "tool", "assistant", "tool", "assistant", "user", "assistant", "tool", "tool"]
        assert output["completion"][1]["content"] == "Exit code 0.\nhello"
    last = server.chats[-1].body
    assert len(last["tools"]) == 7
    ids = [call["id"] for message in last["messages"] for call in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in last["messages"] if message["role"] == "tool"]
    assert ids == answered and len(set(ids)) == len(ids)


def test_a_trainers_limit_ends_the_episode_after_its_last_answer_was_acted_on(serve: Serve, tmp_path: Path) -> None:
    env = load_environment([TASK], settings=SETTINGS, output=tmp_path, max_turns=1)
    (output,) = generate(env, serve())
    assert (output["reward"], output["stop_condition"]) == (-1.0, "max_turns_reached")
    assert output[OUTCOME]["reason"] == "rollout_end"
    (run,) = find_runs([tmp_path])
    events = list(read_events(run.events))
    assert isinstance(events[0], RunStart) and events[0].backend["model"] == "scripted"
    (reply,) = (event.reply for event in events if isinstance(event, ReplyEvent))
    assert (reply.text, reply.usage.prompt_tokens) == ("I look.", 100)
    assert read_ending(run) is not None


def test_trouble_is_an_error_and_no_verdict(serve: Serve, tmp_path: Path) -> None:
    broken = load_environment([TASK], settings=[*SETTINGS, "sandbox.python=/nowhere/python"], output=tmp_path)
    (output,) = generate(broken, serve())
    assert "InfraError" in str(output["error"]) and "/nowhere/python" in str(output["error"])
    assert output["stop_condition"] == "has_error"
    assert list(find_runs([tmp_path])) == []

    down = load_environment([TASK], settings=SETTINGS, output=tmp_path)
    (output,) = generate(down, serve((TURNS[0], steps.error(500, "kaputt"))))
    assert "ModelError" in str(output["error"])
    (run,) = find_runs([tmp_path])
    assert read_ending(run) is None, "what the model's server broke is left unjudged"
    with run.lock():
        pass


def test_tasks_come_from_a_task_set(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "model.py").write_text(TEXT)
    env = load_environment(tmp_path)
    assert [row["info"]["task_text"] for row in env.get_dataset()] == [TEXT]


def test_a_rollout_cancelled_while_it_begins_leaves_nothing_open(serve: Serve, tmp_path: Path) -> None:
    env = load_environment([TASK], settings=SETTINGS, output=tmp_path)
    state = {"model": "scripted", "info": env.get_dataset()[0]["info"], "trajectory_id": "one"}

    async def cancelled() -> None:
        beginning = asyncio.create_task(env.setup_state(state))
        while not list(tmp_path.glob("*/.lock")):
            await asyncio.sleep(0.005)
        beginning.cancel()
        await asyncio.wait([beginning])
        assert beginning.cancelled()

    asyncio.run(cancelled())
    for run in find_runs([tmp_path]):
        with run.lock():
            pass
