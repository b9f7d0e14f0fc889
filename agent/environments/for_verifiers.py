"""For verifiers (evaluation, prime-rl): an environment whose rollouts are KernelEnv's episodes, and its rubric.

    env = load_environment("tasks/", settings=["judge.target=cuda"], output="runs")
    outputs = await env.generate(inputs, client=…, model=…, max_retries=2)

Importing this module needs verifiers (>= 0.1.5, written against 0.1.10). Covers: the conversation is the environment's
own, so that call ids and results fit whatever the server sent; token ids and logprobs are recorded where it gives them.
A rollout that infrastructure broke has an InfraError in its state (verifiers retries it) and no verdict; its reward 0.0
is verifiers' own for errors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.backends.wire import wire_tool
from agent.config import Config, load_config
from agent.environments.extras import extra
from agent.environments.kernel_env import KernelEnv
from agent.environments.observation import Observation, Step
from agent.environments.rows import row_task, task_columns
from agent.environments.threads import AsyncKernelEnv
from agent.errors import AgentError
from agent.judging.target import resolve_target
from agent.loop.actions import tool_schemas
from agent.loop.control import Device
from agent.tasks.sets import load_tasks
from agent.tasks.task import Task

_vf: Any = extra("verifiers", name="verifiers")
_datasets: Any = extra("datasets", name="verifiers")

ENV_ID: Final = "cuda-agent"
OUTCOME: Final = "kernel"
"""Key of a state under which an ended rollout has {reward, reason, run_dir, verdict, error}."""


def load_environment(
    tasks: str | Path | Iterable[Task],
    *,
    settings: Sequence[str] = (),
    output: Path | str | None = None,
    device: Device | None = None,
    **options: Any,
) -> "KernelMultiTurnEnv":
    """`tasks`: a task set (folder, JSONL, parquet, names) or tasks; `settings`: `section.key=value` as for --set.

    `options` go to vf.MultiTurnEnv (max_turns, sampling_args, …). Raises ConfigError, TaskError.
    """
    found = load_tasks(tasks).tasks if isinstance(tasks, str | Path) else tuple(tasks)
    config = load_config(settings=list(settings))
    return KernelMultiTurnEnv(found, config=config, output=output, device=device, **options)


def judge_reward(state: dict[str, Any]) -> float:
    """The judge's reward: -1, 1, 2 or 3; 0.0 where the state has an error instead of a verdict."""
    reward = (state.get(OUTCOME) or {}).get("reward")
    return 0.0 if reward is None else float(reward)


@dataclass
class _Running:
    """One rollout's environment; `played` counts the answers of the model that were acted on."""

    env: AsyncKernelEnv
    observation: Observation
    played: int = 0


class KernelMultiTurnEnv(_vf.MultiTurnEnv):  # type: ignore[misc]
    """Rows are tasks; a rollout ends with the episode, or by the trainer's own rules: then what there is, is judged."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        config: Config | None = None,
        output: Path | str | None = None,
        device: Device | None = None,
        **options: Any,
    ) -> None:
        self.kernel_config, self.output, self.device = config or Config(), output, device
        self._rollouts: dict[str, _Running] = {}
        options.setdefault("env_id", ENV_ID)
        options.setdefault("rubric", _vf.Rubric(funcs=[judge_reward]))
        rows = [{"prompt": [_placeholder(task)], "answer": "", "info": task_columns(task)} for task in tasks]
        schemas = [wire_tool(tool) for tool in tool_schemas(resolve_target(self.kernel_config.judge))]
        super().__init__(dataset=_datasets.Dataset.from_list(rows), oai_tools=schemas, **options)

    async def setup_state(self, state: Any) -> Any:
        """Open the episode; its opening replaces the row's prompt."""
        about = {"trainer": "verifiers", "model": str(state["model"])}
        task = row_task(state["info"])
        env = AsyncKernelEnv(
            KernelEnv(task, config=self.kernel_config, output=self.output, device=self.device, policy=about)
        )
        try:
            observation = await env.reset()
        except BaseException as error:  # a cancelled rollout too: nobody else knows of its sandbox
            await env.close()
            if isinstance(error, AgentError):
                raise _vf.InfraError(str(error)) from error
            raise
        self._rollouts[state["trajectory_id"]] = _Running(env, observation)
        state["prompt"] = observation.openai_messages()
        return state

    async def get_prompt_messages(self, state: Any) -> Any:
        if not state["trajectory"]:
            return state["prompt"]
        await self.env_response([], state)
        return self._rollouts[state["trajectory_id"]].observation.openai_messages()

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        """Act on the model's last answer. At the end, what is new becomes the state's final_env_response."""
        running = self._rollouts[state["trajectory_id"]]
        step = await self._play(running, state)
        new: list[dict[str, Any]] = running.observation.openai_messages(new=True)
        if step.done:
            state["final_env_response"] = new
        return new

    @_vf.cleanup  # type: ignore[untyped-decorator]
    async def leave(self, state: Any) -> None:
        """Judge what there is where the rollout ended first, and free the sandbox.

        A rollout with an error is not judged, nor one that is cancelled.
        """
        running = self._rollouts.pop(state["trajectory_id"], None)
        if running is None:
            return
        try:
            if state["is_completed"] and state["error"] is None and running.env.env.running:
                await self._settle(running, state)
        except _vf.Error as error:
            state["error"] = error
        finally:
            await running.env.close()

    async def _settle(self, running: _Running, state: Any) -> None:
        if running.played < len(state["trajectory"]):
            step = await self._play(running, state)
            if step.done:
                return
        self._conclude(await running.env.finish(str(state.get("stop_condition") or "the rollout ended")), state)

    async def _play(self, running: _Running, state: Any) -> Step:
        last = state["trajectory"][-1]
        try:
            step = await running.env.step(last["response"], finish_reason="length" if last["is_truncated"] else None)
        except AgentError as error:
            raise _vf.InfraError(str(error)) from error
        running.played, running.observation = len(state["trajectory"]), step.observation
        if step.done:
            self._conclude(step, state)
        return step

    def _conclude(self, step: Step, state: Any) -> None:
        known = {key: step.info[key] for key in ("reason", "run_dir", "verdict", "error")}
        state[OUTCOME] = {"reward": step.reward, **known}
        if step.reward is None:
            raise _vf.InfraError((step.info["error"] or {}).get("message") or step.info["reason"])


def _placeholder(task: Task) -> dict[str, str]:
    """What the data set shows of a row before its episode begins."""
    return {"role": "user", "content": task.text}
