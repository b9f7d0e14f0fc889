"""Hand-written scripts and recorded runs as backends: which turn comes when, and what is wrong with a bad script."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from backend_samples import TOOLS, assistant, result, user

from agent.assets import asset
from agent.backends.base import Reply, ToolCall, Usage
from agent.backends.registry import shipped_scripts
from agent.backends.replay import ReplayBackend, ScriptEnd
from agent.backends.script import read_script
from agent.config import BackendConfig
from agent.errors import ConfigError
from agent.trajectory.events import MessageEvent, ReplyEvent

HEAD = "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\nnote: fuses the chain: once\n---\n"
SCRIPT = f"""{HEAD}
Words before the first turn are for readers.

## Turn 1
First I look around.

```action bash timeout_s=5
ls
```

````action write_file path=notes.md
## Turn 2
```
not a heading
```
````

## Turn 2

```action submit
```
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "turns.md"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_script_gives_its_turns(tmp_path: Path) -> None:
    backend = ReplayBackend(write(tmp_path, SCRIPT))
    first = backend.chat([user()], TOOLS)
    assert first.text == "First I look around."
    assert [(c.id, c.name, json.loads(c.arguments)) for c in first.calls] == [
        ("turn1_1", "bash", {"command": "ls", "timeout_s": 5}),
        ("turn1_2", "write_file", {"path": "notes.md", "content": "## Turn 2\n```\nnot a heading\n```\n"}),
    ]
    assert (first.finish_reason, first.usage.prompt_tokens, first.usage.cost_usd) == ("tool_calls", 0, 0.0)


def test_turns_are_chosen_by_the_history(tmp_path: Path) -> None:
    path = write(tmp_path, SCRIPT)
    history = [user(), assistant("", ("turn1_1", "bash", "{}")), result("turn1_1"), user("a person's word")]
    second = ReplayBackend(path).chat(history, TOOLS)
    assert [(c.id, c.name, c.arguments) for c in second.calls] == [("turn2_1", "submit", "{}")]
    with pytest.raises(ScriptEnd, match="2 turns"):
        ReplayBackend(path).chat([*history, assistant("")], TOOLS)


def test_a_script_says_what_it_is(tmp_path: Path) -> None:
    backend = ReplayBackend(write(tmp_path, SCRIPT))
    about = backend.describe()
    assert (about["author"], about["target"], about["is_llm"]) == ("hand-written", "cpu", False)
    assert about["note"] == "fuses the chain: once" and len(about["script_sha256"]) == 64
    assert read_script(backend.path).task == tmp_path / "model.py"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("## Turn 1\n", r"line 1: a script begins with a line ---"),
        ("---\nauthor: me\n", r"line 1: the front matter has no closing"),
        ("---\nauthor: me\ntarget: cpu\n---\n", r"line 4: .*no task"),
        ("---\nauthor: me\ntarget: tpu\ntask: model.py\n---\n", r"line 5: target is cpu or cuda"),
        ("---\nauthor: me\ncolour: red\n---\n", r"line 3: front matter holds"),
        (HEAD, r"line 7: there is no turn"),
        (HEAD + "## Turn 2\n```action compile\n```\n", r"line 7: turn 2 stands where turn 1 belongs"),
        (HEAD + "## Turn one\n", r"line 7: a turn's heading is"),
        (HEAD + "## Turn 1\nwords\n", r"line 7: this turn has no action"),
        (HEAD + "## Turn 1\n```action compile\n", r"line 8: this block is never closed"),
        (HEAD + "## Turn 1\n\n```action dance\n```\n", r"line 9: there is no action dance"),
        (HEAD + "## Turn 1\n```action bash ls\n```\n", r"line 8: cannot read 'ls'"),
        (HEAD + "## Turn 1\n```action edit_file path=a\nx\n```\n", r"line 8: .*<<<<<<< old"),
        (HEAD + "```action compile\n```\n## Turn 1\n```action compile\n```\n", r"line 7: an action stands before"),
    ],
)
def test_a_malformed_script_names_line_and_fault(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ReplayBackend(write(tmp_path, text))


def record(tmp_path: Path, *replies: Reply, tail: str = "") -> Path:
    events = [MessageEvent(seq=0, t=1.0, message=user())]
    lines = [events[0].model_dump_json()]
    lines += [ReplyEvent(seq=n, t=2.0, turn=n, reply=r).model_dump_json() for n, r in enumerate(replies, 1)]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n" + tail, encoding="utf-8")
    return tmp_path


LLM_REPLY = Reply(
    text="hm",
    calls=(
        ToolCall(id="a", name="bash", arguments='{"command": "ls'),
        ToolCall(id="a", name="compile", arguments="{}"),
    ),
    finish_reason="tool_calls",
    usage=Usage(prompt_tokens=5, completion_tokens=6, cost_usd=0.5),
    model="some-model",
    raw={"id": "x", "format_error": "no good"},
    completion_token_ids=(1, 2),
    attempts=3,
    waited_s=9.0,
)


def test_a_recorded_run_is_replayed_as_it_was_said(tmp_path: Path) -> None:
    folder = record(tmp_path, LLM_REPLY, Reply(text="done", finish_reason="length"))
    got = ReplayBackend(folder).chat([user()], TOOLS)
    assert (got.text, got.model, got.finish_reason) == ("hm", "some-model", "tool_calls")
    assert [call.arguments for call in got.calls] == ['{"command": "ls', "{}"]
    assert len({call.id for call in got.calls}) == 2
    assert got.raw["format_error"] == "no good"
    assert ReplayBackend(folder).chat([assistant("hm")], TOOLS).finish_reason == "length"


def test_a_replay_costs_nothing(tmp_path: Path) -> None:
    got = ReplayBackend(record(tmp_path, LLM_REPLY)).chat([user()], TOOLS)
    assert (got.usage, got.attempts, got.waited_s, got.completion_token_ids) == (Usage(cost_usd=0.0), 1, 0.0, None)


def test_a_torn_last_line_is_no_turn(tmp_path: Path) -> None:
    backend = ReplayBackend(record(tmp_path, LLM_REPLY, tail='{"type": "reply", "seq": 2, "re'))
    assert len(backend.turns) == 1


@pytest.mark.parametrize("make", ["missing", "empty folder", "no replies", "damaged"])
def test_what_cannot_be_replayed(tmp_path: Path, make: str) -> None:
    path = tmp_path / "gone" if make == "missing" else tmp_path
    if make == "no replies":
        record(tmp_path)
    if make == "damaged":
        record(tmp_path, LLM_REPLY)
        events = tmp_path / "events.jsonl"
        events.write_text("{}\n" + events.read_text())
    with pytest.raises(ConfigError, match="cannot replay"):
        ReplayBackend(path)


def test_a_replay_without_a_script_says_what_to_set() -> None:
    with pytest.raises(ConfigError) as caught:
        ReplayBackend.from_config(BackendConfig(name="replay"))
    assert "--script" in caught.value.hint


def test_the_shape_of_the_name(tmp_path: Path) -> None:
    backend: Any = ReplayBackend(write(tmp_path, SCRIPT))
    assert backend.name == f"replay:{tmp_path.parent.name}/{tmp_path.name}"


@pytest.mark.parametrize("path", sorted(asset("examples").glob("*/turns.md")), ids=lambda path: path.parent.name)
def test_shipped_scripts_can_be_read_and_belong_to_their_task(path: Path) -> None:
    script = read_script(path)
    assert script.author == "hand-written" and script.task.is_file()
    assert script.turns[-1].actions[-1][0] == "submit"
    assert shipped_scripts()[hashlib.sha256(script.task.read_bytes()).hexdigest()] == path
