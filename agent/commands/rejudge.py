"""`agent rejudge`: judges stored submissions again with the present judge."""

from pathlib import Path
from typing import Annotated

import typer

from agent.ui.options import (
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

    @app.command("rejudge")
    def rejudge(
        runs: Annotated[
            list[Path], typer.Argument(metavar="RUNS...", help="A run, a folder of runs, or a collection.")
        ],
        target: TargetOption = None,
        policy: PolicyOption = None,
        precision: PrecisionOption = None,
        reward: RewardOption = None,
        sandbox: SandboxOption = None,
        consent: ConsentOption = False,
        settings: SetOption = None,
        only_accepted: Annotated[
            bool, typer.Option("--only-accepted", help="Only runs whose present verdict is accepted.")
        ] = False,
        force: Annotated[bool, typer.Option("--force", help="Also what these tools have judged already.")] = False,
        any_timing: Annotated[
            bool,
            typer.Option(
                "--any-timing", help="Lower a reward also where the speed-up was only measured worse than before."
            ),
        ] = False,
        workers: Annotated[
            int,
            typer.Option(min=1, metavar="N", help="Judgements side by side; more than 1 disturbs the timings."),
        ] = 1,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be judged.")] = False,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
        debug: DebugOption = False,
    ) -> int:
        """Judge stored submissions again, each under its run's own rules unless told otherwise, and list what changed.

        Old verdicts are kept in verdicts/ of each run; where the judge could not run, the old verdict stands. Cut off,
        the same command goes on. Exit code: 0 nothing changed, 1 some verdict did, 2 usage, 3 some could not be judged.
        """
        from agent.batch.rejudge import run_rejudge

        flags = judging_flags(target, policy, precision, reward, sandbox, consent)
        return run_rejudge(
            runs,
            flags=flags,
            settings=settings or (),
            only_accepted=only_accepted,
            force=force,
            any_timing=any_timing,
            dry_run=dry_run,
            workers=workers,
            as_json=json,
        )
