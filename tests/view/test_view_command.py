"""`agent view` and `agent rejudge` on the command line: options, what is printed, exit codes."""

import json
from pathlib import Path

import pytest
import typer
from stored_runs import collection
from typer.testing import CliRunner

from agent.commands import rejudge, view
from agent.errors import ConfigError


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    view.register(made)
    rejudge.register(made)
    return made


def test_view_prints_where_the_page_is(app: typer.Typer, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed (the extra [view])")
    folder = collection(tmp_path / "c", tasks=1)
    done = CliRunner().invoke(app, ["view", str(folder), "--overview-only", "-o", str(tmp_path / "o.html")])
    assert done.exit_code == 0 and done.stdout.strip() == str(tmp_path / "o.html")
    table = (tmp_path / "o.html").read_text(encoding="utf-8").split("<tbody>")[1].split("</tbody>")[0]
    assert not (tmp_path / "o-runs").exists() and "<tr" in table and "<a href" not in table


def test_one_run_is_one_page(app: typer.Typer, tmp_path: Path) -> None:
    folder = collection(tmp_path / "c", tasks=1)
    run = next(folder.glob("tasks/*/1/*"))
    done = CliRunner().invoke(app, ["view", str(run)])
    assert done.exit_code == 0 and done.stdout.strip() == str(run / "view.html")
    assert [path.name for path in folder.rglob("*.html")] == ["view.html"]


def test_open_hands_the_page_to_the_browser(app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    script = tmp_path / "my-browser"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > {told}\n')
    script.chmod(0o755)
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    run = next(collection(tmp_path / "c", tasks=1).glob("tasks/*/1/*"))
    assert CliRunner().invoke(app, ["view", str(run), "--open"]).exit_code == 0
    assert told.read_text() == (run / "view.html").as_uri()


def test_rejudge_lists_what_it_would_do(app: typer.Typer, tmp_path: Path) -> None:
    folder = collection(tmp_path / "c", tasks=1)
    done = CliRunner().invoke(app, ["rejudge", str(folder), "--dry-run", "--json", "--sandbox", "bubblewrap"])
    data = json.loads(done.stdout)
    assert data["counts"]["planned"] == 2 and data["counts"]["skipped"] == 1, data
    done = CliRunner().invoke(app, ["rejudge", str(folder), "--dry-run", "--sandbox", "bubblewrap"])
    assert "3 runs: 2 planned, 1 skipped" in done.stdout


def test_what_is_wrong_is_a_line_for_a_person(app: typer.Typer, tmp_path: Path) -> None:
    for command in ("view", "rejudge"):
        done = CliRunner().invoke(app, [command, str(tmp_path)])
        assert isinstance(done.exception, ConfigError) and "there is no run in" in done.exception.message
