"""For TRL's GRPOTrainer: an environment factory whose methods are the actions, dataset rows, and a reward function.

    trainer = GRPOTrainer(model, train_dataset=dataset(tasks), environment_factory=environment_factory(config),
                          reward_funcs=kernel_reward, args=GRPOConfig(max_completion_length=…))

Covers trl >= 1.0 (written against 1.16). TRL hands over calls, one by one, not the messages around them: each call is a
turn here, a message without a call ends the rollout, and texts and token ids stay with TRL. What a rollout left is
judged when TRL asks for rewards; a rollout that infrastructure broke has reward None, which TRL leaves out.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from agent.backends.base import Message, ToolCall, ToolSchema
from agent.backends.sanitize import dump_object
from agent.config import Config
from agent.environments.extras import extra
from agent.environments.kernel_env import KernelEnv
from agent.environments.rows import row_task, task_columns
from agent.judging.target import resolve_target
from agent.judging.tool_runs import Target
from agent.loop.actions import tool_schemas
from agent.loop.control import Device
from agent.loop.prompts import render
from agent.tasks.task import Task

TYPES: Final[dict[str, type]] = {"string": str, "number": float, "integer": int, "boolean": bool}
JUDGES_AT_ONCE: Final = 8
"""Threads of the reward function; what is timed still runs one at a time on a device."""


def environment_factory(
    config: Config | None = None, *, output: Path | str | None = None, device: Device | None = None
) -> "Callable[[], Rollout]":
    """What GRPOTrainer wants as `environment_factory`; one instance serves one rollout at a time."""
    target = resolve_target((config or Config()).judge)
    return functools.partial(_tools_class(target), config=config, output=output, device=device)


def dataset(tasks: Iterable[Task]) -> Any:
    """A datasets.Dataset with one row a task; the opening is put into the prompt when a rollout begins."""
    return extra("datasets", name="trl").Dataset.from_list([task_row(task) for task in tasks])


def task_row(task: Task) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": ""}], **task_columns(task)}


def kernel_reward(environments: "Sequence[Rollout]", **_: Any) -> list[float | None]:
    """The judge's reward of each rollout: -1, 1, 2 or 3; None where nobody can know. Ends rollouts still under way."""
    with ThreadPoolExecutor(min(JUDGES_AT_ONCE, max(1, len(environments)))) as pool:
        return list(pool.map(lambda environment: environment._score(), environments))


class Rollout:
    """One rollout. TRL makes a tool of each public method but reset, so everything else is private."""

    def __init__(self, *, config: Config | None, output: Path | str | None, device: Device | None) -> None:
        self._config, self._output, self._device = config, output, device
        self._env: KernelEnv | None = None
        self._reward: float | None = None
        self._over = ""

    def reset(self, **row: Any) -> str:
        """Begin with a row of `dataset`; the result is appended to the prompt's last message.

        Raises TaskError, and SandboxError or JudgeError where an episode cannot begin.
        """
        if self._env is not None:
            self._env.close()
        self._env = KernelEnv(
            row_task(row), config=self._config, output=self._output, device=self._device, policy={"trainer": "trl"}
        )
        self._reward, self._over = None, ""
        return self._env.reset().text

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        if self._env is None or not self._env.running:
            return render("over", reason=self._over)
        call = ToolCall(id="", name=name, arguments=dump_object(arguments))
        step = self._env.step(Message(role="assistant", content="", tool_calls=(call,)))
        if step.done:
            self._reward, self._over = step.reward, step.info["reason"]
        return step.observation.text

    def _score(self) -> float | None:
        if self._env is not None and self._env.running:
            step = self._env.finish("the rollout ended")
            self._reward, self._over = step.reward, step.info["reason"]
        return self._reward


@functools.cache
def _tools_class(target: Target) -> type[Rollout]:
    return type("KernelTools", (Rollout,), {schema.name: _method(schema) for schema in tool_schemas(target)})


def _method(schema: ToolSchema) -> Callable[..., str]:
    """A typed method with a Google docstring, from which TRL makes the schema again: the words stand in one place."""

    def method(self: Rollout, **arguments: Any) -> str:
        return self._call(schema.name, arguments)

    parameters = _parameters(schema)
    kinds = {parameter.name: parameter.annotation for parameter in parameters}
    method.__name__, method.__qualname__ = schema.name, f"KernelTools.{schema.name}"
    method.__doc__ = _docstring(schema)
    method.__annotations__ = {**kinds, "return": str}
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = inspect.Signature((itself, *parameters), return_annotation=str)  # type: ignore[attr-defined]
    return method


def _parameters(schema: ToolSchema) -> list[inspect.Parameter]:
    required = schema.parameters["required"]
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in required else None,
            annotation=TYPES[value["type"]],
        )
        for name, value in schema.parameters["properties"].items()
    ]


def _docstring(schema: ToolSchema) -> str:
    lines = [f"    {name}: {value['description']}" for name, value in schema.parameters["properties"].items()]
    arguments = "\n".join(["", "", "Args:", *lines]) if lines else ""
    return f"{schema.description}{arguments}\n\nReturns:\n    What came of it."
