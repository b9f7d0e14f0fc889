"""Short windows: what is left out, what always stays, and that an episode in 2,048 tokens goes on to its end."""

import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import TASK, MakeSession
from stand_ins import Turns, bash

from agent.backends.base import Message, ToolCall
from agent.backends.openai_api import OpenAIBackend
from agent.backends.protocols import with_protocol
from agent.backends.scripted_server import ScriptedServer
from agent.backends.scripted_steps import Step, overflow, reply
from agent.config import BackendConfig, Config, load_config
from agent.errors import ContextOverflow
from agent.judging.tool_runs import Rules
from agent.loop.actions import tool_schemas
from agent.loop.condense import EXAMPLE_MARK, REFILL, Kept, condense, split_turns
from agent.loop.opening import first_messages
from agent.loop.play import play
from agent.loop.session import Session
from agent.loop.window import MOST_SHRINKS, Window, fitted
from agent.trajectory.events import MessageEvent, ReplyEvent, RunStart, StopEvent, StopReason
from agent.trajectory.reader import read_events

SYSTEM = Message(role="system", content=f"rules\n{EXAMPLE_MARK}\n" + "an example " * 20)
TASK_MESSAGE = Message(role="user", content="the task")
KERNEL = Kept((("kernels/fast.cpp", "the kernel"), ("model_new.py", "the module")), best=True, speedup=1.25)


def turn(number: int, *, size: int = 100, name: str = "bash") -> list[Message]:
    call = ToolCall(id=f"c{number}", name=name, arguments=json.dumps({"command": f"step {number}"}))
    result = f"result {number}\n" + "x" * size
    return [
        Message(role="assistant", content=f"thought {number}", tool_calls=(call,)),
        Message(role="tool", content=result, tool_call_id=call.id),
    ]


def conversation(*sizes: int) -> list[Message]:
    return [SYSTEM, TASK_MESSAGE, *(message for n, size in enumerate(sizes) for message in turn(n, size=size))]


def test_what_fits_is_shown_as_it_is() -> None:
    messages = conversation(10, 20)
    assert condense(messages, KERNEL, budget=10_000).messages == tuple(messages)
    assert condense(messages[:2], KERNEL, budget=10).messages == tuple(messages[:2])


def test_older_turns_become_a_note_with_the_best_kernel() -> None:
    view = condense(conversation(*[500] * 9), KERNEL, budget=3600)
    system, task, *rest = view.messages
    assert 0 < view.hidden < 9 and split_turns(rest)[0] == []
    assert "the kernel" in task.content and "1.25x" in task.content and "bash step 5: result 5" in task.content
    assert rest[-1].content.startswith("result 8") and "an example" not in system.content
    assert view.chars <= REFILL * 3600


def test_repeated_steps_are_counted_once() -> None:
    messages = [SYSTEM, TASK_MESSAGE, *turn(1) * 5, *turn(2, size=900)]
    assert "bash step 1: result 1 (5 times)" in condense(messages, Kept(), budget=1800).messages[1].content


def test_a_last_turn_that_is_too_long_is_shortened_from_both_ends() -> None:
    messages = [*conversation(10), *turn(7, size=9000), Message(role="user", content="a word at the end")]
    view = condense(messages, KERNEL, budget=1500)
    note = view.messages[-1].content
    assert view.hidden == 2 and len(view.messages) == 2
    assert "result 7" in note and "a word at the end" in note and "characters omitted" in note and "the kernel" in note


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(0, 5000), max_size=12),
    budget=st.integers(1, 20_000),
    cut=st.integers(0, 20),
    kernel=st.integers(0, 8000),
)
def test_every_view_is_well_formed_and_fits_or_is_as_short_as_can_be(
    sizes: list[int], budget: int, cut: int, kernel: int
) -> None:
    messages = conversation(*sizes)
    kept = Kept((("model_new.py", "k" * kernel),), best=True)
    view = condense(messages, kept, budget=budget, cut=cut)
    opening, turns = split_turns(view.messages)
    assert [message.role for message in opening] == ["system", "user"]
    assert view.hidden + len(turns) == len(sizes)
    assert [m for t in turns for m in t] == messages[len(messages) - sum(map(len, turns)) :]
    assert view.hidden == 0 or "model_new.py" in opening[-1].content, "the kernel stays in view"
    if view.chars > budget and sizes:
        assert view.hidden == len(sizes) and budget < 2500, "nothing more could go"
    assert condense(messages, kept, budget=budget, cut=view.hidden).hidden == view.hidden, "a fixed point"


def test_a_views_beginning_stays_until_it_is_full_again() -> None:
    window = Window(2000, reply=500, overhead_chars=0)
    messages, beginnings = conversation(), []
    for number in range(40):
        messages += turn(number, size=300)
        view = window.view(messages, lambda: KERNEL)
        assert view.chars <= window.budget_chars
        beginnings.append(view.messages[1].content)
    changes = sum(a != b for a, b in itertools.pairwise(beginnings))
    assert 2 < changes < 25


def test_a_new_best_is_shown_at_once_and_other_files_when_more_is_condensed() -> None:
    window = Window(2000, reply=500, overhead_chars=0)
    messages = conversation(*[400] * 12)
    draft = Kept((("model_new.py", "a draft"),))
    assert "a draft, better" not in window.view(messages, lambda: draft).messages[1].content
    later = Kept((("model_new.py", "a draft, better"),))
    assert "a draft, better" not in window.view(messages, lambda: later).messages[1].content
    best = Kept(later.files, best=True, speedup=1.5)
    assert "1.50x" in window.view(messages, lambda: best).messages[1].content
    changed = Kept(later.files, best=True, speedup=1.5, changed=True)
    assert "holds a changed one" in window.view(messages, lambda: changed).messages[1].content


def test_the_servers_counts_set_how_much_fits() -> None:
    window = Window(2000, reply=500, overhead_chars=0)
    view = condense(conversation(1000), Kept(), budget=9999)
    window.measured(view, view.chars // 2)
    assert window.budget_chars == pytest.approx(1500 * 2, rel=0.01)
    window.measured(view, 0)
    assert window.budget_chars == pytest.approx(1500 * 2, rel=0.01)


def short(url: str = "http://127.0.0.1:9/v1", *, tokens: int = 2048, **limits: Any) -> Config:
    values = [
        f"backend.context_tokens={tokens}",
        f"backend.base_url={url}",
        "backend.model=scripted",
        "limits.time_s=0",
    ]
    return fitted(load_config(settings=[*values, *(f"limits.{key}={value}" for key, value in limits.items())]))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_short_opening_leaves_room_in_2048_tokens(make_session: MakeSession, target: Any) -> None:
    config = short()
    assert config.limits.observation_chars == 768
    sandbox = make_session(Turns()).bench.sandbox
    task = TASK.__class__(path=TASK.path, name="long", text="# a long task\n" * 2000, sha256="0" * 64)
    system, said = first_messages(config, task, Rules(target=target), sandbox)
    assert "characters left out, see model.py" in said.content
    assert len(system.content) + len(said.content) < 4500
    head, mark, example = system.content.partition(f"\n{EXAMPLE_MARK}\n")
    assert mark and "model_new.py" in head and "class ModelNew" in example
    assert ("triton" in example) == (target == "cuda")


class Counting:
    """A model with a window: counts tokens, refuses what is too long, and acts on and on."""

    def __init__(self, tokens: int, *, chars_per_token: float) -> None:
        self.tokens, self.chars_per_token = tokens, chars_per_token
        self.asked: list[int] = []
        self.prompts: list[str] = []

    def __call__(self, body: Mapping[str, Any]) -> Step:
        text = "\n".join(str(message["content"]) for message in body["messages"])
        prompt = int(len(text) / self.chars_per_token)
        self.asked.append(prompt)
        if prompt + body["max_tokens"] > self.tokens:
            return overflow()
        self.prompts.append(text)
        number = len(self.prompts)
        action = f"```action bash\necho {number}; seq {number} 400\n```"
        if number == 1:
            action = "```action write_file path=model_new.py\n# my own module\n```"
        return reply(f"Next.\n\n{action}", usage={"prompt_tokens": prompt, "completion_tokens": 9})


def play_short(make_session: MakeSession, model: Counting, **limits: Any) -> Session:
    with ScriptedServer(model) as server:
        config = short(server.base_url, tokens=model.tokens, **limits)
        client = OpenAIBackend(config.backend)
        session = make_session(with_protocol(client, config.backend))
        session.config = config
        session.bench = replace(session.bench, limits=config.limits)
        session.window = Window.of(config.backend, tool_schemas())
        play(session, lambda: begin_short(session, config))
        client.close()
    return session


def begin_short(session: Session, config: Config) -> None:
    start: dict[str, Any] = {"run_id": "x", "task_sha256": TASK.sha256, "agent_version": "0", "backend": {}}
    session.log.record(RunStart, sandbox={}, tools=(), **start)
    for message in first_messages(config, TASK, Rules(target="cpu"), session.bench.sandbox):
        session.log.record(MessageEvent, message=message)


@pytest.mark.parametrize("chars_per_token", [2.4, 3.0, 4.5])
def test_an_episode_in_2048_tokens_goes_on_to_its_last_turn(make_session: MakeSession, chars_per_token: float) -> None:
    model = Counting(2048, chars_per_token=chars_per_token)
    session = play_short(make_session, model, turns=40)
    events = list(read_events(session.folder.events))
    stop = events[-1]
    assert isinstance(stop, StopEvent) and stop.reason is StopReason.TURNS
    assert len(model.prompts) == 40 and len(model.asked) - 40 <= MOST_SHRINKS, "few refusals, and no turn is lost"
    replies = [event for event in events if isinstance(event, ReplyEvent)]
    assert replies[0].condensed_turns == 0 and replies[-1].condensed_turns > 30
    assert all("# my own module" in prompt for prompt in model.prompts[1:]), "what it wrote stays in view"
    assert all("echo 39" in prompt or "39" in prompt for prompt in model.prompts[39:])


def test_a_window_that_nothing_fits_ends_the_episode(make_session: MakeSession) -> None:
    model = Counting(2048, chars_per_token=0.5)
    session = play_short(make_session, model, turns=40)
    assert session.ledger.stop is not None and session.ledger.stop.reason is StopReason.CONTEXT
    assert len(model.asked) == MOST_SHRINKS + 1


def test_a_server_that_shrinks_its_window_on_the_way_ends_the_episode(make_session: MakeSession) -> None:
    """Each refusal shortens the view for good, so refusals cannot go on for ever, however they are spread."""
    turns: list[Any] = []
    for number in range(40):
        turns += [bash(f"echo {number}")]
    backend = Turns(*turns)
    refusing, lock = iter(range(10**6)), threading.Lock()
    inner = backend.chat

    def chat(messages: Any, tools: Any) -> Any:
        with lock:
            if next(refusing) % 2:
                raise ContextOverflow("the window is full")
        return inner(messages, tools)

    backend.chat = chat  # type: ignore[method-assign]
    session = make_session(backend)
    session.window = Window(100_000, reply=100, overhead_chars=0)
    play(session, lambda: begin_short(session, short()))
    assert session.ledger.stop is not None and session.ledger.stop.reason is StopReason.CONTEXT
    assert session.ledger.turns <= MOST_SHRINKS + 1


def test_without_a_known_window_nothing_is_condensed() -> None:
    assert Window.of(BackendConfig(model="m"), tool_schemas()) is None
    assert Window.of(BackendConfig(name="replay", script="x", context_tokens=2048), tool_schemas()) is None
    config = load_config(settings=["backend.model=m"])
    assert fitted(config) is config


def test_links_in_the_workspace_are_not_followed(make_session: MakeSession, tmp_path: Path) -> None:
    from agent.loop.keeping import kept_in_view

    session = make_session(Turns())
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    (session.folder.workspace / "model_new.py").symlink_to(secret)
    assert kept_in_view(session.folder, session.ledger) == Kept()
