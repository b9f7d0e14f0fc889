"""`agent view`: pages of a run or a collection, for a browser."""

from pathlib import Path
from typing import Annotated

import typer

from agent.ui.options import DebugOption


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("view")
    def view(
        runs: Annotated[
            list[Path], typer.Argument(metavar="RUNS...", help="A run, a folder of runs, or a collection.")
        ],
        output: Annotated[
            Path | None,
            typer.Option(
                "-o", "--output", metavar="FILE|FOLDER", help="Where the page goes; default: view.html beside its runs."
            ),
        ] = None,
        overview_only: Annotated[
            bool, typer.Option("--overview-only", help="No page for each run, only the overview.")
        ] = False,
        open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
        workers: Annotated[
            int | None, typer.Option(min=1, metavar="N", help="Processes; default: as many as there are cores.")
        ] = None,
        debug: DebugOption = False,
    ) -> int:
        """Write HTML pages that need no server and no network: one for each run, and an overview of all of them.

        The overview sorts and filters, and shows rewards, fast_p, speed-up by turn and cost. Exit code: 0, or 2, 3.
        """
        from agent.view.site import write_view

        written = write_view(runs, output=output, run_pages=not overview_only, workers=workers)
        typer.echo(written.page)
        if open_page:
            import webbrowser

            if not webbrowser.open(written.page.as_uri()):
                typer.echo("no browser was found", err=True)
        return 0
