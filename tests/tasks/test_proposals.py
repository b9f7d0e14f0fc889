"""Candidates from a language model over real HTTP: usable ones become candidates, everything else a reason; answers are
kept and asked for once."""

from pathlib import Path

import pytest

from agent.backends.openai_api import OpenAIBackend
from agent.backends.scripted_server import ScriptedServer
from agent.backends.scripted_steps import reply
from agent.config import BackendConfig
from agent.errors import ConfigError
from agent.tasks.synthesis.candidate import Candidate, NotMade
from agent.tasks.synthesis.operators import catalogue
from agent.tasks.synthesis.proposals import Proposer, proposals_path

GOOD = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 64)

    def forward(self, x):
        return F.gelu(self.linear(x))

batch_size = 512
width = 128

def get_inputs():
    return [torch.randn(batch_size, width)]

def get_init_inputs():
    return [width]
"""
ANSWERS = (
    f"Here it is.\n```python\n{GOOD}```\nIt fuses well.",
    "```python\ndef f(:\n```",
    "I cannot do that.",
    f"```python\n{GOOD.replace('F.gelu(self.linear(x))', 'self.linear(x)')}```",
    "",
)


@pytest.fixture
def proposer(tmp_path: Path):
    with ScriptedServer([reply(text) for text in ANSWERS]) as server:

        def make() -> Proposer:
            backend = OpenAIBackend(BackendConfig(model="scripted", base_url=server.base_url))
            return Proposer(backend, path, seed=1, target="cpu", catalogue=catalogue())

        path = proposals_path(tmp_path / "set.jsonl")
        yield make, server, path


def test_answers_become_candidates_or_reasons_and_are_kept(proposer) -> None:
    make, server, path = proposer
    first = make()
    found = [first.candidate("torch#2", number) for number in range(len(ANSWERS))]
    assert isinstance(found[0], Candidate) and found[0].text == GOOD
    assert found[0].ops == ("torch.nn.Linear", "torch.nn.functional.gelu")
    details = [one.detail for one in found[1:] if isinstance(one, NotMade)]
    assert len(details) == 4
    assert "not valid Python" in details[0] and "not valid Python" in details[1]
    assert details[2] == "1 operators instead of 2" and "no class `Model" in details[3]
    assert len(server.chats) == len(ANSWERS)
    first.backend.close()

    path.write_bytes(path.read_bytes()[:-20])  # torn while the last answer was written
    again = make()
    assert [again.candidate("torch#2", number) for number in range(4)] == found[:4]
    assert len(server.chats) == len(ANSWERS)
    again.backend.close()


def test_the_prompt_names_operators_and_depends_on_seed_and_number(proposer) -> None:
    make, server, _ = proposer
    one = make()
    one.candidate("torch#3", 0)
    one.candidate("torch#3", 1)
    prompts = [chat.body["messages"][0]["content"] for chat in server.chats]
    assert all("exactly 3 of these operators" in prompt and prompt.count("\n- torch.") == 6 for prompt in prompts)
    assert prompts[0] != prompts[1] and "None" not in prompts[0]
    one.backend.close()


def test_a_proposal_out_of_the_band_gets_other_sizes(proposer) -> None:
    make, _, _ = proposer
    one = make()
    assert isinstance(one.candidate("torch#2", 0), Candidate)
    larger = one.candidate("torch#2", 0, factor=5.0, attempt=1)
    assert isinstance(larger, Candidate) and "batch_size = 2048" in larger.text and larger.attempt == 1
    one.backend.close()


def test_a_damaged_file_of_answers_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl.proposals.jsonl"
    path.write_text("nonsense\n")
    backend = OpenAIBackend(BackendConfig(model="scripted", base_url="http://127.0.0.1:1/v1"))
    with pytest.raises(ConfigError, match="no kept answer"):
        Proposer(backend, path, seed=1, target="cpu", catalogue=catalogue())
    backend.close()
