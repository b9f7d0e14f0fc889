"""For verl: an agent loop on KernelEnv, rows for its dataset, and a reward function for single answers.

Importing this module needs verl (>= 0.9). In the file that `rollout.agent.agent_loop_config_path` names:

    - name: kernel_agent
      _target_: agent.environments.for_verl.KernelAgentLoop
      output: runs
      settings: [limits.turns=40, judge.target=cuda]

A rollout that infrastructure broke twice has mask 0 throughout; `verl_advantage.py` keeps it out of its group's mean.
Covers token ids as verl's server gave them, never re-tokenised: what the model sampled has mask 1, everything else 0.
What is timed holds the machine's device, so that the workers of one machine do not disturb each other.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from agent.backends.wire import wire_tool
from agent.config import Config, load_config
from agent.environments.extras import extra
from agent.environments.incoming import Tokens
from agent.environments.kernel_env import KernelEnv
from agent.environments.observation import Observation, Step
from agent.environments.rows import row_task, task_columns
from agent.environments.threads import AsyncKernelEnv
from agent.errors import ConfigError, JudgeError, RecordError, SandboxError
from agent.judging.target import resolve_target
from agent.loop.actions import tool_schemas
from agent.tasks.task import Task

_loops: Any = extra("verl.experimental.agent_loop.agent_loop", name="verl")
_parsers: Any = extra("verl.experimental.agent_loop.tool_parser", name="verl")
_schemas: Any = extra("verl.tools.schemas", name="verl")

AGENT_NAME: Final = "kernel_agent"
SAMPLING: Final = ("temperature", "top_p", "top_k", "repetition_penalty")


@dataclass
class _Rollout:
    """The token record of one rollout; `mask` and `logprobs` belong to the tokens behind the prompt."""

    ids: list[int]
    prompt_length: int
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None
    assistant_turns: int = 0
    other_turns: int = 0
    generating_s: float = 0.0
    acting_s: float = 0.0
    preempted: int = -1
    extra: dict[str, Any] = field(default_factory=dict)
    last: Step | None = None

    @property
    def broken(self) -> bool:
        return self.last is not None and self.last.info["error"] is not None


class KernelAgentLoop(_loops.AgentLoopBase):  # type: ignore[misc]
    """One rollout is one episode. The row's extra_info has the task's columns (`verl_row`)."""

    def __init__(
        self, *args: Any, settings: Sequence[str] = (), output: str | None = None, tools: Any = None, **kwargs: Any
    ) -> None:
        """`settings`: `section.key=value` as for --set; `output`: folder for the runs. Raises ConfigError."""
        super().__init__(*args, **kwargs)
        self.kernel_config: Config = load_config(settings=[str(setting) for setting in settings])
        self.output = output
        self.parser = _parsers.ToolParser.get_tool_parser(self.rollout_config.multi_turn.format, self.tokenizer)
        self.schemas = [wire_tool(tool) for tool in tool_schemas(resolve_target(self.kernel_config.judge))]
        self.tool_schemas = [_schemas.OpenAIFunctionToolSchema.model_validate(schema) for schema in self.schemas]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """An AgentLoopOutput. A rollout that infrastructure broke is played once more, then it has mask 0 throughout.

        Raises TaskError for a row without a task, ConfigError for an opening that does not fit, and SandboxError,
        JudgeError or RecordError where no episode could begin.
        """
        task = row_task(kwargs.get("extra_info") or {})
        try:
            rollout = await self._episode(task, sampling_params)
            if not rollout.broken:
                return self._output(rollout)
        except (SandboxError, JudgeError, RecordError):
            pass
        return self._output(await self._episode(task, sampling_params))

    async def _episode(self, task: Task, sampling_params: dict[str, Any]) -> _Rollout:
        sampling = {key: sampling_params[key] for key in SAMPLING if key in sampling_params}
        about = {"trainer": "verl", "sampling": sampling}
        env = AsyncKernelEnv(KernelEnv(task, config=self.kernel_config, output=self.output, policy=about))
        try:
            return await self._play(env, dict(sampling_params))
        finally:
            await env.close()

    async def _play(self, env: AsyncKernelEnv, sampling: dict[str, Any]) -> _Rollout:
        observation = await env.reset()
        messages = _template_messages(observation)
        prompt = await self.ct_build_initial_tokens(messages, tools=self.schemas)
        longest = self.rollout_config.prompt_length
        if len(prompt) >= longest:  # verl cuts the beginning off such a prompt
            raise ConfigError(f"the opening has {longest} tokens or more", hint="raise rollout.prompt_length")
        rollout, request = _Rollout(list(prompt), len(prompt)), uuid4().hex
        if self.parser.stop_token_ids:
            stops = {*(sampling.get("stop_token_ids") or ()), *self.parser.stop_token_ids}
            sampling["stop_token_ids"] = sorted(stops)
        while rollout.last is None or not rollout.last.done:
            answer = await self._generate(rollout, request, sampling)
            cut_off = len(rollout.mask) >= self.rollout_config.response_length
            step = rollout.last = await self._act(env, rollout, answer, cut_off=cut_off)
            if not step.done and (cut_off or not await self._hear(rollout, step.observation)):
                rollout.last = await env.finish("the response length was used up")
        return rollout

    async def _generate(self, rollout: _Rollout, request: str, sampling: dict[str, Any]) -> Any:
        began = time.monotonic()
        answer = await self.server_manager.generate(
            request_id=request, prompt_ids=list(rollout.ids), sampling_params=sampling
        )
        rollout.generating_s += time.monotonic() - began
        _note(rollout, answer)
        known = rollout.logprobs if rollout.mask else ([] if answer.log_probs else None)
        new = answer.log_probs if known is not None else None
        merged, rollout.mask, rollout.logprobs = await self.ct_merge_assistant_token(
            rollout.ids, answer.token_ids, rollout.mask, known, assistant_logprobs=new
        )
        rollout.ids = merged.token_ids
        return answer

    async def _act(self, env: AsyncKernelEnv, rollout: _Rollout, answer: Any, *, cut_off: bool) -> Step:
        text, calls = await self.parser.extract_tool_calls(answer.token_ids, self.tool_schemas)
        message = {
            "role": "assistant",
            "content": text.strip().removesuffix(self.tokenizer.eos_token or "").strip(),
            "tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls],
        }
        before = rollout.ids[: len(rollout.ids) - len(answer.token_ids)]
        tokens = Tokens(prompt_ids=before, completion_ids=answer.token_ids, logprobs=answer.log_probs or None)
        began = time.monotonic()
        step = await env.step(message, tokens=tokens, finish_reason="length" if cut_off else None)
        rollout.acting_s += time.monotonic() - began
        return step

    async def _hear(self, rollout: _Rollout, observation: Observation) -> bool:
        """Append what the environment said; False where it no longer fits (then nothing is appended)."""
        messages = _template_messages(observation)
        said = messages[: len(messages) - len(observation.new)]
        merged, mask, logprobs = await self.ct_merge_context_msg(
            said, messages, rollout.ids, rollout.mask, rollout.logprobs, tools=self.schemas
        )
        if len(mask) >= self.rollout_config.response_length:
            return False
        rollout.ids, rollout.mask, rollout.logprobs = merged.token_ids, mask, logprobs
        rollout.other_turns += 1
        return True

    def _output(self, rollout: _Rollout) -> Any:
        assert rollout.last is not None
        info, longest = rollout.last.info, self.rollout_config.response_length
        mask = [0] * len(rollout.mask) if rollout.broken else rollout.mask
        known = {"kernel_run": info["run_dir"], "kernel_reason": info["reason"], "kernel_error": info["error"]}
        return _loops.AgentLoopOutput(
            prompt_ids=rollout.ids[: rollout.prompt_length],
            response_ids=rollout.ids[rollout.prompt_length :][:longest],
            response_mask=mask[:longest],
            response_logprobs=None if rollout.logprobs is None else rollout.logprobs[:longest],
            reward_score=rollout.last.reward or 0.0,
            num_turns=rollout.assistant_turns + rollout.other_turns + 1,
            metrics=_loops.AgentLoopMetrics(
                generate_sequences=rollout.generating_s, tool_calls=rollout.acting_s, num_preempted=rollout.preempted
            ),
            extra_fields={**rollout.extra, **known, "turn_scores": [], "tool_rewards": []},
        )


def verl_row(task: Task, *, index: int = 0, split: str = "train") -> dict[str, Any]:
    """A row of verl's RL dataset for the agent loop; the opening is made when the episode begins."""
    return {
        "data_source": "cuda-agent",
        "prompt": [{"role": "user", "content": task.text}],
        "ability": "kernel",
        "reward_model": {"style": "rule", "ground_truth": task.sha256},
        "extra_info": {"split": split, "index": index, **task_columns(task)},
        "agent_name": AGENT_NAME,
    }


def verl_rows(tasks: Iterable[Task], *, split: str = "train") -> list[dict[str, Any]]:
    return [verl_row(task, index=index, split=split) for index, task in enumerate(tasks)]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    settings: Sequence[str] = (),
    output: Path | str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """verl's `custom_reward_function`, for policies that answer once, without the agent loop.

    The answer's fenced action blocks (write_file …) are carried out in a fresh episode, then it is judged. Raises what
    KernelEnv raises, and JudgeError where infrastructure kept the reward from being known: it is never made up.
    """
    config = load_config(settings=["backend.tool_protocol=text", *map(str, settings)])
    with KernelEnv(row_task(extra_info or {}), config=config, output=output, policy={"trainer": "verl"}) as env:
        env.reset()
        step = env.step(solution_str)
        if not step.done:
            step = env.finish("a single answer")
    if step.reward is None:
        error = step.info["error"] or {"message": step.info["reason"]}
        raise JudgeError(f"the answer could not be judged: {error['message']}")
    return {"score": step.reward, "reason": step.info["reason"], "run": step.info["run_dir"]}


def _note(rollout: _Rollout, answer: Any) -> None:
    """What verl keeps of each answer of its server."""
    rollout.assistant_turns += 1
    if answer.num_preempted is not None:
        rollout.preempted = max(rollout.preempted, 0) + answer.num_preempted
    if not rollout.extra:
        rollout.extra.update(answer.extra_fields)
    elif (newest := answer.extra_fields.get("max_global_steps")) is not None:
        rollout.extra["max_global_steps"] = newest


def _template_messages(observation: Observation) -> list[dict[str, Any]]:
    """As chat templates want them: arguments as objects, results with the action's name."""
    messages = observation.openai_messages()
    names: dict[str, str] = {}
    for message in messages:
        message["content"] = message["content"] or ""
        for call in message.get("tool_calls", ()):
            names[call["id"]] = call["function"]["name"]
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if message["role"] == "tool":
            message["name"] = names.get(message["tool_call_id"], "")
    return messages
