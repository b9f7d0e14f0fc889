"""verl's own AgentLoopWorker runs rollouts of the agent loop, with tokens that a tiny random model really sampled."""

import asyncio
import copy
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what verl's own imports are deprecated for
    name = "verl.experimental.agent_loop.agent_loop"
    pytest.importorskip(name, reason="verl is not installed: pip install 'cuda-agent[verl]'")

import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf, open_dict
from tiny import TASK, configuration
from tiny_policy import CALLS, END, WORDS, make_model, make_tokenizer, suppressed

from agent.environments.for_verl import KernelAgentLoop, compute_score, verl_rows
from agent.environments.rows import row_task
from agent.environments.verl_advantage import NAME
from agent.errors import ConfigError, TaskError
from agent.trajectory.events import ReplyEvent, RunStart
from agent.trajectory.reader import read_events
from agent.trajectory.stored import find_runs, read_ending

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch, pytest.mark.filterwarnings("default")]
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content }}
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% elif message.role != "system" or not tools %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
RESPONSE_LENGTH = 600


class TinyServer:
    """What verl's client of its token servers offers: prompt ids in, sampled ids with their logprobs out."""

    def __init__(self, path: Path) -> None:
        self.tokenizer = make_tokenizer(TEMPLATE)
        self.model = make_model(self.tokenizer)
        self.suppressed = suppressed(self.tokenizer)
        self.asked: list[tuple[list[int], list[int]]] = []
        self.breaks = path / "nothing"
        self.tokenizer.save_pretrained(path)
        self.model.save_pretrained(path)

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        ids, logprobs = await asyncio.to_thread(self._sample, prompt_ids)
        self.asked.append((list(prompt_ids), ids))
        for workspace in self.breaks.glob("*/workspace"):
            shutil.rmtree(workspace)
        return TokenOutput(token_ids=ids, log_probs=logprobs, extra_fields={"max_global_steps": 3})

    def _sample(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        out = self.model.generate(
            torch.tensor([prompt_ids]),
            do_sample=True,
            max_new_tokens=3,
            suppress_tokens=self.suppressed,
            return_dict_in_generate=True,
            output_scores=True,
        )
        ids = out.sequences[0][len(prompt_ids) :].tolist()
        scores = [step[0].log_softmax(-1) for step in out.scores]
        return ids, [float(score[number]) for score, number in zip(scores, ids, strict=True)]


@pytest.fixture(scope="module")
def defaults() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


@pytest.fixture
def server(tmp_path: Path) -> TinyServer:
    return TinyServer(tmp_path / "model")


@pytest.fixture
def worker(tmp_path: Path, defaults: DictConfig, server: TinyServer, request: pytest.FixtureRequest) -> Any:
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    configuration()
    loops = tmp_path / "loops.yaml"
    entry = {
        "name": "kernel_agent",
        "_target_": "agent.environments.for_verl.KernelAgentLoop",
        "output": str(tmp_path / "runs"),
        "settings": ["sandbox.kind=bubblewrap", "judge.target=cpu", "limits.turns=3", "limits.format_errors=9"],
    }
    loops.write_text(OmegaConf.to_yaml(OmegaConf.create([entry])))
    config = copy.deepcopy(defaults)
    with open_dict(config):
        rollout = config.actor_rollout_ref.rollout
        rollout.name = "vllm"
        rollout.prompt_length = getattr(request, "param", 12288)
        rollout.response_length = RESPONSE_LENGTH
        rollout.agent.agent_loop_config_path = str(loops)
        config.actor_rollout_ref.model.path = str(tmp_path / "model")
    return AgentLoopWorker(config, llm_client=server)


def batch_of(count: int) -> Any:
    import numpy as np
    from verl.protocol import DataProto

    rows = verl_rows([TASK] * count)
    columns = {key: np.array([row[key] for row in rows], dtype=object) for key in rows[0] if key != "prompt"}
    prompts = np.empty(count, dtype=object)
    prompts[:] = [row["prompt"] for row in rows]
    return DataProto.from_dict(tensors={"dummy": torch.zeros(count, 1)}, non_tensors={**columns, "raw_prompt": prompts})


def test_rollouts_of_verls_worker(worker: Any, server: TinyServer, tmp_path: Path) -> None:
    torch.manual_seed(3)
    output = asyncio.run(worker.generate_sequences(batch_of(3)))
    runs = list(find_runs([tmp_path / "runs"]))
    assert len(runs) == 3
    by_run = {str(run.path): run for run in runs}
    for row in range(3):
        item = output[row]
        assert item.non_tensor_batch["kernel_error"] is None
        run = by_run.pop(item.non_tensor_batch["kernel_run"])
        ending = read_ending(run)
        assert ending is not None and ending.reward == -1
        check_tokens(item.batch, run, server)
    assert not by_run
    assert set(output.non_tensor_batch["kernel_reason"]) <= {"turns", "rollout_end"}


def check_tokens(batch: Any, run: Any, server: TinyServer) -> None:
    """Each sampled token stands once, with mask 1, in the order in which it was sampled; all else has mask 0."""
    mask, ids = batch["response_mask"], batch["responses"]
    attention = batch["attention_mask"][-RESPONSE_LENGTH:]
    length = int(attention.sum())
    events = list(read_events(run.events))
    replies = [event.reply for event in events if isinstance(event, ReplyEvent)]
    assert isinstance(events[0], RunStart) and events[0].backend["trainer"] == "verl"
    sampled = [number for reply in replies for number in reply.completion_token_ids or ()]
    assert ids[mask.bool()].tolist() == sampled != []
    assert 0 < len(sampled) < length <= RESPONSE_LENGTH
    assert mask[length:].sum() == 0
    logprobs = [value for reply in replies for value in reply.logprobs or ()]
    assert batch["rollout_log_probs"][mask.bool()].tolist() == pytest.approx(logprobs)
    assert batch["rollout_log_probs"][~mask.bool()].abs().sum() == 0
    assert float(batch["rm_scores"].sum()) == -1.0
    prompt = batch["prompts"][batch["attention_mask"][:-RESPONSE_LENGTH].bool()].tolist()
    assert list(replies[0].prompt_token_ids or ()) == prompt
    whole = prompt + ids[:length].tolist()
    for reply in replies:
        before = list(reply.prompt_token_ids or ())
        assert whole[: len(before)] == before, "a later turn's prompt only adds to an earlier one"
        assert (before, list(reply.completion_token_ids or ())) in server.asked
    text = server.tokenizer.decode(ids[:length])
    assert text.count("<tool_response>") == sum(len(reply.calls) for reply in replies[:-1])
    assert any(call in text for call in CALLS) or not any(reply.calls for reply in replies)


def test_what_infrastructure_breaks_is_played_again_and_then_counts_for_no_loss(
    worker: Any, server: TinyServer, tmp_path: Path
) -> None:
    server.suppressed += [server.tokenizer.convert_tokens_to_ids(text) for text in (*CALLS[1:], WORDS, END)]
    server.breaks = tmp_path / "runs"
    (item,) = asyncio.run(worker.generate_sequences(batch_of(1)))
    assert item.batch["response_mask"].sum() == 0
    assert item.batch["rm_scores"].sum() == 0
    assert item.non_tensor_batch["kernel_error"]["type"] == "SandboxError"
    endings = [read_ending(run) for run in find_runs([tmp_path / "runs"])]
    assert [(ending.reward, ending.settled) for ending in endings if ending] == [(None, False)] * 2


def test_a_broken_rollout_is_in_no_mean(defaults: DictConfig) -> None:
    import numpy as np
    from verl.protocol import DataProto
    from verl.trainer.ppo.ray_trainer import compute_advantage

    rewards, mask = torch.zeros(5, 3), torch.ones(5, 3)
    rewards[:, 2] = torch.tensor([3.0, -1.0, 0.0, 2.0, 0.0])
    mask[2] = mask[4] = 0  # without a reward, as the agent loop leaves what broke twice
    groups = np.array(["a", "a", "a", "b", "c"], dtype=object)

    def advantages(rows: list[int], estimator: str) -> torch.Tensor:
        tensors = {"token_level_rewards": rewards[rows].clone(), "response_mask": mask[rows]}
        data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": groups[rows]})
        found: torch.Tensor = compute_advantage(data, estimator, config=defaults.algorithm).batch["advantages"]
        return found

    whole = advantages([0, 1, 2, 3, 4], NAME)
    assert torch.equal(whole[[0, 1, 3]], advantages([0, 1, 3], "grpo"))
    assert not torch.equal(whole[[0, 1]], advantages([0, 1, 2], "grpo")[:2]), "verl's own counts it"
    assert whole[[2, 4]].abs().sum() == 0
    assert advantages([2, 4], NAME).abs().sum() == 0


@pytest.mark.parametrize("worker", [512], indirect=True)
def test_an_opening_that_verl_would_cut_is_refused(worker: Any) -> None:
    with pytest.raises(ConfigError, match=r"raise rollout\.prompt_length"):
        asyncio.run(worker.generate_sequences(batch_of(1)))


def test_a_row_without_a_task_is_refused() -> None:
    assert row_task(verl_rows([TASK])[0]["extra_info"]).sha256 == TASK.sha256
    with pytest.raises(TaskError):
        row_task({"index": 1})


def test_a_single_answer_is_carried_out_and_judged(tmp_path: Path) -> None:
    configuration()
    row = verl_rows([TASK])[0]
    answer = "A file:\n```action write_file path=notes.txt\nsecond\n```\n"
    settings = ("sandbox.kind=bubblewrap", "judge.target=cpu")
    columns = (row["data_source"], answer, row["reward_model"]["ground_truth"], row["extra_info"])
    found = compute_score(*columns, settings=settings, output=tmp_path)
    assert (found["score"], found["reason"]) == (-1.0, "rollout_end")
    assert (Path(found["run"]) / "workspace" / "notes.txt").read_text() == "second\n"


def test_verl_finds_the_loop_by_its_name() -> None:
    from hydra.utils import get_class

    assert get_class("agent.environments.for_verl.KernelAgentLoop") is KernelAgentLoop
