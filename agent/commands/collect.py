"""`agent collect`: many episodes of many tasks, resumable, on this machine or on a Ray cluster."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from agent.ui.options import (
    ConfigOption,
    ConsentOption,
    DebugOption,
    PolicyOption,
    PrecisionOption,
    RewardOption,
    SandboxOption,
    SetOption,
    TargetOption,
    ToolProtocol,
    judging_flags,
)


class ExecutorKind(StrEnum):
    local = "local"
    ray = "ray"


MOST_SAMPLES: Final = 100_000
"""A slip of the finger must not fill the memory."""


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("collect")
    def collect(
        tasks: Annotated[
            str,
            typer.Argument(
                metavar="TASKS", help="A folder, a JSONL or parquet file, a KernelBench checkout, or examples' names."
            ),
        ],
        output: Annotated[
            Path, typer.Option("-o", "--output", metavar="COLLECTION", help="Folder; the same one goes on.")
        ],
        task: Annotated[
            list[str] | None, typer.Option("--task", metavar="ID", help="Only these, or a pattern. Repeatable.")
        ] = None,
        samples: Annotated[int, typer.Option(help="Episodes per task.", min=1, max=MOST_SAMPLES, metavar="K")] = 1,
        workers: Annotated[
            int | None, typer.Option(help="Episodes at once; default: 2 per core.", min=1, metavar="N")
        ] = None,
        executor: Annotated[ExecutorKind, typer.Option(help="Where episodes run.")] = ExecutorKind.local,
        ray_address: Annotated[
            str, typer.Option(metavar="ADDRESS", help="A running Ray cluster: auto, or HOST:PORT.")
        ] = "",
        backend: Annotated[
            str | None,
            typer.Option(
                help="auto, builtin, local, replay, a name from `agent models`, or module:Class.", metavar="NAME"
            ),
        ] = None,
        model_name: Annotated[
            str | None,
            typer.Option("--model", help="Name of the model at the server; a GGUF file for local.", metavar="NAME"),
        ] = None,
        base_url: Annotated[str | None, typer.Option(help="Root of an OpenAI-compatible API.", metavar="URL")] = None,
        api_key_env: Annotated[
            str | None, typer.Option(help="Variable that holds the key.", metavar="VARIABLE")
        ] = None,
        script: Annotated[
            str | None,
            typer.Option(help="Replay: one script or run for all, or a folder with one per task id.", metavar="PATH"),
        ] = None,
        tool_protocol: Annotated[
            ToolProtocol | None,
            typer.Option(help="How the model calls actions: native calls, fenced text, or one JSON object."),
        ] = None,
        target: TargetOption = None,
        policy: PolicyOption = None,
        precision: PrecisionOption = None,
        reward: RewardOption = None,
        sandbox: SandboxOption = None,
        consent: ConsentOption = False,
        turns: Annotated[int | None, typer.Option(help="Per episode; 0: no limit.", min=0, metavar="N")] = None,
        time: Annotated[str | None, typer.Option(help="Per episode: 90, 15m, 1h30m.", metavar="DURATION")] = None,
        tokens: Annotated[str | None, typer.Option(help="Per episode: 500k, 2M.", metavar="COUNT")] = None,
        cost: Annotated[float | None, typer.Option(help="Per episode, US dollars.", min=0, metavar="USD")] = None,
        job_tokens: Annotated[str | None, typer.Option(help="For the whole collection.", metavar="COUNT")] = None,
        job_cost: Annotated[float | None, typer.Option(help="For the whole collection.", min=0, metavar="USD")] = None,
        job_time: Annotated[str | None, typer.Option(help="For this command.", metavar="DURATION")] = None,
        job_gpu_seconds: Annotated[
            float | None, typer.Option(help="Seconds in which a device was leased.", min=0, metavar="SECONDS")
        ] = None,
        retry_errors: Annotated[
            bool, typer.Option("--retry-errors", help="New attempts for what infrastructure kept from a verdict.")
        ] = False,
        settings: SetOption = None,
        config: ConfigOption = None,
        plain: Annotated[bool, typer.Option("--plain", help="One line a minute in a terminal too.")] = False,
        json: Annotated[bool, typer.Option("--json", help="One attempt per line, then the summary.")] = False,
        debug: DebugOption = False,
    ) -> int:
        """Collect K episodes of every task; the same command goes on where an earlier one ended, however it ended.

        The first ^C lets running episodes finish, the second leaves them to be gone on with.
        Exit code: 0 all done, 1 something is owed, 2 usage, 3 infrastructure.
        """
        from agent.batch.collect import CollectRequest, run_collect
        from agent.batch.driver import Orders
        from agent.batch.spending import JobBudget
        from agent.ui.quantities import parse_count, parse_duration

        flags = {
            "backend.name": backend,
            "backend.model": model_name,
            "backend.base_url": base_url,
            "backend.api_key_env": api_key_env,
            "backend.script": script,
            "backend.tool_protocol": tool_protocol,
            **judging_flags(target, policy, precision, reward, sandbox, consent),
            "limits.turns": turns,
            "limits.time_s": None if time is None else parse_duration(time),
            "limits.tokens": None if tokens is None else parse_count(tokens),
            "limits.cost_usd": cost,
        }
        budget = JobBudget(
            tokens=parse_count(job_tokens, flag="--job-tokens") if job_tokens else 0,
            cost_usd=job_cost or 0.0,
            time_s=parse_duration(job_time, flag="--job-time") if job_time else 0.0,
            device_s=job_gpu_seconds or 0.0,
        )
        request = CollectRequest(
            tasks=tasks,
            output=output,
            names=tuple(task or ()),
            samples=samples,
            workers=workers,
            executor=executor.value,
            ray_address=ray_address,
            files=tuple(config or ()),
            settings=tuple(settings or ()),
            flags=flags,
            orders=Orders(budget=budget, retry_errors=retry_errors),
            plain=plain,
            json=json,
        )
        return run_collect(request)
