"""backend local with llama.cpp itself and a real model: AGENT_TEST_GGUF names its file.

AGENT_TEST_LLAMA_PYTHON names an interpreter with llama-cpp-python[server] where the tests' own has none.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_samples import TOOLS, user
from tiny_gguf import write_gguf

from agent.backends.fences import FormatError, scan
from agent.backends.local import LocalBackend
from agent.backends.local_server import LLAMA_CPP
from agent.backends.probe import examine
from agent.config import BackendConfig, LocalConfig, load_config
from agent.errors import ConfigError, ContextOverflow
from agent.loop.control import SilentListener
from agent.loop.episode import run_episode
from agent.tasks.task import load_task
from agent.trajectory.events import ObservationEvent, ReplyEvent, RunEnd
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events

ROOT = Path(__file__).resolve().parents[2]
GGUF = os.environ.get("AGENT_TEST_GGUF", "")
PYTHON = os.environ.get("AGENT_TEST_LLAMA_PYTHON", sys.executable)
COMMAND = [PYTHON, *LLAMA_CPP[1:]]

pytestmark = [
    pytest.mark.llm,
    pytest.mark.skipif(not GGUF, reason="AGENT_TEST_GGUF names no model"),
    pytest.mark.timeout(3600),
]


def configured(model: str = GGUF, **values: object) -> BackendConfig:
    given = {"name": "local", "model": model, "context_tokens": 2048, "max_output_tokens": 200, "temperature": 0.0}
    return BackendConfig.model_validate({**given, **values, "local": LocalConfig(command=COMMAND).model_dump()})


@pytest.fixture
def backend() -> Iterator[LocalBackend]:
    made = LocalBackend(configured())
    yield made
    made.close()


@pytest.mark.parametrize("protocol", ["text", "json"])
def test_a_round_trip_in_each_notation(protocol: str) -> None:
    found = examine(configured(tool_protocol=protocol))
    assert found.ok, found.checks
    assert found.trip is not None and found.trip.prompt_tokens > 0
    assert found.about["refused_fields"] == []


def test_the_grammar_leaves_no_way_but_an_action(backend: LocalBackend) -> None:
    reply = backend.chat([user("Tell me a story and do nothing else.")], TOOLS)
    if reply.finish_reason != "length":  # else it was cut off inside its action
        assert len(reply.calls) == 1 and "format_error" not in reply.raw
    else:
        try:
            assert len(scan(reply.text).blocks) <= 1
        except FormatError as error:
            pytest.fail(str(error))


def test_a_prompt_that_does_not_fit_is_an_overflow(backend: LocalBackend) -> None:
    with pytest.raises(ContextOverflow):
        backend.chat([user("word " * 4000)], TOOLS)


def test_an_architecture_that_llama_cpp_does_not_know(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", architecture="zzzz", weights=64)
    with pytest.raises(ConfigError, match="does not know the architecture 'zzzz'"):
        LocalBackend(configured(str(path))).start()


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_a_whole_episode_in_2048_tokens(tmp_path: Path) -> None:
    task = load_task(ROOT / "examples" / "softmax-scale-mask" / "model.py")
    config = load_config(settings=["limits.turns=3", "sandbox.kind=bubblewrap", "judge.target=cpu"])
    config = config.model_copy(update={"backend": configured()})
    folder = RunFolder.create(tmp_path, task, config)
    backend = LocalBackend(config.backend)
    try:
        result = run_episode(config, task, folder, backend=backend, listener=SilentListener())
    finally:
        backend.close()
    events = list(read_events(folder.events))
    replies = [event for event in events if isinstance(event, ReplyEvent)]
    calls = [call.id for event in replies for call in event.reply.calls]
    assert not result.reason.infrastructure and result.judge_errors == ()
    assert calls == [event.call_id for event in events if isinstance(event, ObservationEvent)]
    assert isinstance(events[-1], RunEnd) and events[-1].reward in (-1, 1, 2, 3)
    assert 1 <= result.turns <= 3
