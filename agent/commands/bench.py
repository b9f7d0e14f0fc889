"""`agent bench`: one submission per task of a suite, judged and scored."""

from pathlib import Path
from typing import Annotated

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
    judging_flags,
)


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("bench")
    def bench(
        suite: Annotated[
            str,
            typer.Argument(
                metavar="SUITE", help="A KernelBench checkout, a folder, a JSONL or parquet file, or examples."
            ),
        ],
        output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder; the same one goes on.")],
        submissions: Annotated[
            Path | None,
            typer.Option(
                metavar="DIR", help="One workspace folder or model_new.py per task id: DIR/level1/3_Softmax.py."
            ),
        ] = None,
        reference: Annotated[
            bool, typer.Option("--reference", help="Time the references alone: eager and compiled, nothing is judged.")
        ] = False,
        backend: Annotated[
            str | None, typer.Option(help="Play an episode per task first, with this backend.", metavar="NAME")
        ] = None,
        model_name: Annotated[str | None, typer.Option("--model", metavar="NAME", help="The backend's model.")] = None,
        base_url: Annotated[str | None, typer.Option(metavar="URL", help="Root of an OpenAI-compatible API.")] = None,
        script: Annotated[
            str | None, typer.Option(metavar="PATH", help="Replay: one script, or a folder with one per task id.")
        ] = None,
        levels: Annotated[str, typer.Option(metavar="1,2,3", help="Only these levels.")] = "",
        task: Annotated[
            list[str] | None, typer.Option("--task", metavar="ID", help="Only these, or a pattern. Repeatable.")
        ] = None,
        workers: Annotated[
            int | None,
            typer.Option(min=1, metavar="N", help="Episodes at once; --reference: problems prepared at once."),
        ] = None,
        limit: Annotated[int, typer.Option(min=0, metavar="N", help="The first N tasks only.")] = 0,
        budget_s: Annotated[
            float, typer.Option("--budget-s", min=0, metavar="S", help="--reference: begin none after S seconds.")
        ] = 0.0,
        target: TargetOption = None,
        policy: PolicyOption = None,
        precision: PrecisionOption = None,
        reward: RewardOption = None,
        sandbox: SandboxOption = None,
        consent: ConsentOption = False,
        settings: SetOption = None,
        config: ConfigOption = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
        debug: DebugOption = False,
    ) -> int:
        """Judge a suite and count as KernelBench does: pass rate, faster than eager and compiled, fast_p, geomeans.

        The same command goes on where an earlier one ended. Exit code: 0 all judged, 1 some not, 2 usage, 3 none.
        """
        from agent.bench.bench import BenchRequest, run_bench
        from agent.errors import ConfigError

        episodes = any(value is not None for value in (backend, model_name, base_url, script))
        if sum((submissions is not None, reference, episodes)) != 1:
            raise ConfigError("say what is judged", hint="--submissions DIR, --reference, or --backend NAME")
        flags = {
            "backend.name": backend,
            "backend.model": model_name,
            "backend.base_url": base_url,
            "backend.script": script,
            **judging_flags(target, policy, precision, reward, sandbox, consent),
        }
        request = BenchRequest(
            suite=suite,
            output=output,
            submissions=submissions,
            reference=reference,
            episodes=episodes,
            levels=tuple(level.strip() for level in levels.split(",") if level.strip()),
            names=tuple(task or ()),
            workers=workers,
            limit=limit,
            budget_s=budget_s,
            files=tuple(config or ()),
            settings=tuple(settings or ()),
            flags=flags,
            json=json,
        )
        return run_bench(request)
