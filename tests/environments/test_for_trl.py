"""TRL's own GRPOTrainer takes a step on episodes whose calls a tiny random model really sampled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="trl is not installed: pip install 'cuda-agent[trl]'")
pytest.importorskip("torch")

from tiny import TASK, configuration
from tiny_policy import make_model, make_tokenizer, suppressed
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from agent.backends.wire import wire_tool
from agent.environments.for_trl import Rollout, dataset, environment_factory, kernel_reward
from agent.errors import TaskError
from agent.loop.actions import tool_schemas
from agent.trajectory.events import ObservationEvent, StopReason
from agent.trajectory.reader import read_events
from agent.trajectory.stored import find_runs, read_ending

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch, pytest.mark.filterwarnings("default")]


@pytest.fixture
def rollout(tmp_path: Path) -> Iterator[Any]:
    made = environment_factory(configuration("limits.turns=3"), output=tmp_path)()
    yield made
    if made._env is not None:
        made._env.close()


def row() -> dict[str, Any]:
    return dict(dataset([TASK])[0])


def test_trl_makes_the_very_schemas_of_the_actions_from_the_methods(rollout: Any) -> None:
    for schema in tool_schemas():
        found = get_json_schema(getattr(rollout, schema.name))["function"]
        wanted = wire_tool(schema)["function"]
        assert (found["name"], found["description"]) == (wanted["name"], wanted["description"])
        assert found["parameters"].get("properties", {}) == wanted["parameters"]["properties"]
        assert found["parameters"].get("required", []) == wanted["parameters"]["required"]
    public = {name for name in dir(type(rollout)) if not name.startswith("_")}
    assert public == {"reset", *(schema.name for schema in tool_schemas())}


def test_calls_are_turns_and_nothing_happens_after_the_end(rollout: Any) -> None:
    assert TASK.text in rollout.reset(**row())
    assert rollout.bash(command="echo one") == "Exit code 0.\none"
    assert "timeout_s" in rollout.bash(command="true", timeout_s="soon")
    assert rollout.bash(command="touch /workspace/third").startswith("Exit code 0.")
    assert "the episode is over (turns)" in rollout.bash(command="touch /workspace/fourth")
    assert kernel_reward([rollout]) == [-1.0]
    assert not (rollout._env.run_dir / "workspace" / "fourth").exists()
    rollout.reset(**row())
    assert rollout.submit() and kernel_reward([rollout]) == [-1.0]
    assert rollout._env.result.reason is StopReason.ROLLOUT_END


def test_a_rollout_that_infrastructure_broke_has_no_reward(rollout: Any) -> None:
    rollout.reset(**row())
    rollout._env._session.bench.sandbox.close()
    rollout.bash(command="echo one")
    assert kernel_reward([rollout]) == [None]
    with pytest.raises(TaskError):
        rollout.reset(task_text="x = 1")


def brevity(completions: list[list[dict[str, Any]]], **_: Any) -> list[float]:
    """Differs between rollouts that the judge holds equal, so that there is something to learn."""
    return [-0.1 * len(completion) for completion in completions]


def test_a_grpo_step_with_the_real_trainer(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(qwen3_chat_template)
    model = make_model(tokenizer)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    arguments = GRPOConfig(
        output_dir=str(tmp_path / "trainer"),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=400,
        max_tool_calling_iterations=3,
        generation_kwargs={"suppress_tokens": suppressed(tokenizer)},
        max_steps=1,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        seed=1,
        save_strategy="no",
        logging_steps=1,
    )
    trainer = GRPOTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset([TASK, TASK]),
        processing_class=tokenizer,
        environment_factory=environment_factory(
            configuration("limits.turns=0", "limits.repeats=1000"), output=tmp_path / "runs"
        ),
        reward_funcs=[kernel_reward, brevity],
    )
    trainer.train()
    (logged,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert logged["rewards/kernel_reward/mean"] == -1.0
    assert logged["grad_norm"] > 0
    runs = list(find_runs([tmp_path / "runs"]))
    assert len(runs) == 4
    endings = [read_ending(run) for run in runs]
    assert [ending.reward for ending in endings if ending] == [-1] * 4
    seen = [event for run in runs for event in read_events(run.events) if isinstance(event, ObservationEvent)]
    called = round(4 * logged["tools/call_frequency"])
    assert len(seen) == round(called * (1 - logged["tools/failure_frequency"])) > 0, "TRL's failures: no such tool"
    assert {event.text for event in seen} <= {"Exit code 0.\nhello", "Exit code 0.\n/workspace"}
    after = dict(model.named_parameters())
    assert any(not after[name].equal(value) for name, value in before.items())
    assert isinstance(trainer.environments[0], Rollout)
