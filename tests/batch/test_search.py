"""Searches over tries at one task: rounds, seeds, what a new try is told, the winner, and whole commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.backends.scripted_server import ScriptedServer
from agent.backends.scripted_steps import Step, reply
from agent.batch import search
from agent.batch.search import Tried, Try, confirm, plan_round, round_sizes, run_rounds
from agent.batch.search_folder import SearchFolder
from agent.config import Config, SearchConfig, load_config
from agent.errors import ConfigError, InUse
from agent.loop.waiting import Interrupted
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import load_task
from agent.trajectory.events import VerdictEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events
from agent.trajectory.searched import resumable
from agent.trajectory.writer import encode_line
from agent.ui.outcome import read_outcome

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "examples" / "softmax-scale-mask" / "run"
HEAD = "---\nauthor: hand-written\ntarget: cpu\ntask: model.py\n---\n"
HERE = ("--sandbox", "bubblewrap", "--target", "cpu")
SUBMITS = HEAD + '## Turn 1\n```action submit summary="nothing to show"\n```\n'
SLOW = (
    HEAD
    + "## Turn 1\n```action bash\necho it has begun; sleep 300\n```\n"
    + SUBMITS.removeprefix(HEAD).replace("1", "2")
)


def tried(path: Path, number: int, *, eager: tuple[float, float] = (2.0, 1.9), reward: int = 3, **more: Any) -> Tried:
    """A copy of a recorded run whose verdict says this: (ratio, lower bound) over eager, the hardest rival."""
    folder = path / f"run-{number}"
    shutil.copytree(RECORDED, folder)
    ratio, low = eager
    lines = []
    for event in read_events(folder / "events.jsonl"):
        if isinstance(event, VerdictEvent):
            verdict = event.verdict | {"reward": reward}
            if reward < 0:
                reasons = [{"code": "numerics.mismatch", "detail": f"try {number} is off by 3"}]
                verdict |= {"verdict": "rejected", "correct": False, "reasons": reasons}
            else:
                speedup = {"ratio": ratio, "low": low, "high": ratio + 0.1, "call": "faster"}
                verdict["speedup"] = {"eager": speedup, "compile": speedup | {"ratio": 9.0, "low": 8.0, "high": 9.9}}
            sha256 = more.get("sha256", str(number))
            event = event.model_copy(update={"verdict": verdict, "submission_sha256": sha256})
        lines.append(encode_line(event))
    (folder / "events.jsonl").write_bytes(b"".join(lines))
    return Tried(Try(number), read_outcome(RunFolder(folder)), 0)


def beam(**more: Any) -> SearchConfig:
    return SearchConfig(kind="beam", **more)


def test_tries_are_spread_over_rounds() -> None:
    assert round_sizes(SearchConfig(kind="best-of"), 8) == (8,)
    assert round_sizes(SearchConfig(), 3) == (3,)
    assert round_sizes(beam(rounds=3), 8) == (3, 3, 2)
    assert round_sizes(beam(rounds=3), 2) == (1, 1)
    assert round_sizes(beam(rounds=1), 5) == (5,)


def test_a_round_starts_from_the_best_submissions_in_turn(tmp_path: Path) -> None:
    done = [
        tried(tmp_path, 1, eager=(1.5, 1.4)),
        tried(tmp_path, 2, reward=-1),
        tried(tmp_path, 3, eager=(2.5, 1.2)),
        tried(tmp_path, 4, eager=(1.9, 1.8)),
        tried(tmp_path, 5, eager=(1.9, 1.75), sha256="4"),
    ]
    planned = plan_round(done, round=2, first=6, size=3, width=2)
    assert [(attempt.number, attempt.round, attempt.parent) for attempt in planned] == [(6, 2, 4), (7, 2, 1), (8, 2, 4)]
    seed = planned[0].seed
    assert seed is not None
    assert seed.folder == done[3].outcome.folder.best
    assert seed.notes.index("Try 4 (its submission is in the workspace): accepted, reward 3: 1.90×") == 0
    assert "rejected: numerics.mismatch: try 2 is off by 3" in seed.notes
    assert "turn " in seed.notes
    assert "profile" in seed.notes
    assert seed.notes.index("Try 1: ") < seed.notes.index("Try 3: ") < seed.notes.index("Try 2: ")


def test_what_is_told_stays_short(tmp_path: Path) -> None:
    done = [tried(tmp_path, number) for number in range(1, 10)]
    (attempt,) = plan_round(done, round=2, first=10, size=1, width=1)
    assert attempt.seed is not None
    assert "3 weaker tries are left out" in attempt.seed.notes
    assert len(attempt.seed.notes) < 12_000


def test_where_nothing_was_accepted_the_next_round_is_told_why(tmp_path: Path) -> None:
    (attempt,) = plan_round([tried(tmp_path, 1, reward=-1)], round=2, first=2, size=1, width=2)
    assert (attempt.parent, attempt.seed and attempt.seed.folder) == (None, None)
    assert attempt.seed is not None
    assert "try 1 is off by 3" in attempt.seed.notes


def test_rounds_are_played_in_order_and_end_when_somebody_leaves(tmp_path: Path) -> None:
    played: list[list[int]] = []

    def play(tries: Sequence[Try]) -> list[Tried]:
        played.append([attempt.number for attempt in tries])
        return [tried(tmp_path, attempt.number) for attempt in tries]

    assert len(run_rounds(beam(rounds=3), 5, play=play, leaving=lambda: False)) == 5
    assert played == [[1, 2], [3, 4], [5]]
    assert run_rounds(beam(rounds=2), 2, play=lambda tries: [], leaving=lambda: True) == []


def test_a_higher_lower_bound_wins_where_intervals_overlap(tmp_path: Path) -> None:
    wide, sure = tried(tmp_path, 1, eager=(2.5, 1.2)), tried(tmp_path, 2, eager=(1.9, 1.8))
    rewarded = tried(tmp_path, 3, eager=(9.0, 8.0), reward=2)
    assert max([wide, sure, rewarded], key=search.rank) is sure


def test_a_record_names_tries_parents_and_the_winner(tmp_path: Path) -> None:
    done = [tried(tmp_path, 2), tried(tmp_path, 1, reward=-1)]
    verdict = done[0].outcome.verdict
    found = [search.Confirmation(done[0], verdict)]
    config = load_config(settings=["search.kind=beam", "run.samples=2", f"run.output={tmp_path / 'searches'}"])
    folder = SearchFolder.create(done[0].outcome.task, config)
    folder.write(done, found, complete=True)
    stored = json.loads((folder.path / "search.json").read_text())
    assert [(item["number"], item["run"], item["reward"]) for item in stored["tries"]][1] == (2, "run-2", 3)
    assert (stored["winner"], stored["confirmations"][0]["verdict"]["verdict"]) == (2, "accepted")
    assert stored["search"]["kind"] == "beam"
    again = SearchFolder.open(folder.path)
    assert (again.config, again.task.text) == (config, done[0].outcome.task.text)
    assert [(c.tried.attempt.number, c.verdict) for c in again.confirmed(done) or ()] == [(2, verdict)]


def test_a_search_knows_its_runs_again(tmp_path: Path) -> None:
    task = load_task(ROOT / "tests" / "loop" / "gelu" / "model.py")
    folder = SearchFolder.create(task, load_config(settings=[f"run.output={tmp_path}", "search.kind=best-of"]))
    first, known = folder.run_for(1)
    assert not known
    gone, _ = folder.run_for(2)
    gone.discard()
    again = SearchFolder.open(folder.path)
    assert again.run_for(1) == (first, True)
    new, known = again.run_for(2)
    assert not known and new.path.is_dir()
    with folder.lock(), pytest.raises(InUse, match="in use by another process"), again.lock():
        pass
    assert again.confirmed([]) is None
    assert resumable(first.path) == folder.path
    assert resumable(tmp_path / "a-run") == tmp_path / "a-run"
    folder.discard_empty()
    assert first.path.is_dir()


@pytest.mark.parametrize("damage", ["", "{", '{"task": {}}', "[]"])
def test_a_damaged_search_is_said(tmp_path: Path, damage: str) -> None:
    task = load_task(ROOT / "tests" / "loop" / "gelu" / "model.py")
    folder = SearchFolder.create(task, load_config(settings=[f"run.output={tmp_path}"]))
    (folder.path / "search.json").write_text(damage)
    with pytest.raises(ConfigError, match=r"search\.json is damaged"):
        SearchFolder.open(folder.path)
    (folder.path / "config.json").unlink()
    with pytest.raises(ConfigError, match="made by an older version"):
        SearchFolder.open(folder.path)


def test_leaving_ends_the_last_judgement(tmp_path: Path) -> None:
    one = tried(tmp_path, 1)
    with pytest.raises(Interrupted):
        confirm(one.outcome.config, one.outcome.task, [one], folder=tmp_path, leave=lambda: True)


def test_nothing_accepted_needs_no_last_judgement(tmp_path: Path) -> None:
    one = tried(tmp_path, 1, reward=-1)
    assert confirm(one.outcome.config, one.outcome.task, [one], folder=tmp_path, leave=lambda: False) == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    report = check_bubblewrap(Config().sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")
    shutil.copy(ROOT / "tests" / "loop" / "gelu" / "model.py", tmp_path)
    return tmp_path


def optimize(project: Path, turns: str, *more: str, style: str = "--json") -> subprocess.Popen[str]:
    (project / "turns.md").write_text(turns)
    return agent(
        project, "model.py", "--script", "turns.md", "--sandbox", "bubblewrap", "--target", "cpu", style, *more
    )


def agent(project: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "agent", "optimize", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT), "MAX_JOBS": "2"}
    return subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_a_beam_whose_tries_submit_nothing(project: Path) -> None:
    process = optimize(project, SUBMITS, "--samples", "3", "--search", "beam", "--set", "search.rounds=2")
    out, errors = process.communicate()
    assert process.returncode == 1, errors
    *lines, summary = [json.loads(line) for line in out.splitlines()]
    (folder,) = (project / "runs").iterdir()
    assert (summary["type"], summary["search"], summary["verdict"]) == ("summary", str(folder), None)
    assert (summary["rounds"], summary["parents"], summary["rewards"]) == ([1, 1, 2], [None] * 3, [-1] * 3)
    assert {line["run"] for line in lines} == set(summary["runs"])
    third = Path(summary["runs"][2])
    own = [line for line in lines if line["run"] == str(third) and line["type"] != "result"]
    logged = [json.loads(line) for line in (third / "events.jsonl").read_text().splitlines()]
    assert [{k: v for k, v in line.items() if k != "run"} for line in own] == logged
    told = [event["message"]["content"] for event in logged if event["type"] == "message"][2]
    assert "This is not the first try" in told
    assert "Its author said: nothing to show" in told
    record = json.loads((folder / "search.json").read_text())
    assert [item["round"] for item in record["tries"]] == [1, 1, 2]
    assert record["winner"] is None


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_one_signal_ends_all_tries_and_judges_what_there_is(project: Path) -> None:
    process = optimize(project, SLOW, "--samples", "3", "--workers", "2", style="--plain")
    assert process.stdout is not None
    seen = []
    while sum("preparing: starting the sandbox" in line for line in seen) < 2:
        seen.append(process.stdout.readline())
        assert seen[-1], "".join(seen)
    process.terminate()
    out, errors = process.communicate()
    assert process.returncode == 1, errors
    assert errors.startswith("stopping: ")
    shown = "".join(seen) + out
    assert "#1 " in shown
    assert "#2 " in shown
    assert "#3 " not in shown
    assert "2 tries" in shown
    assert len(list((project / "runs").iterdir())) == 2


@pytest.mark.bubblewrap
@pytest.mark.torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_leaving_the_last_judgement_says_how_to_go_on(project: Path, number: signal.Signals) -> None:
    task = RunFolder(RECORDED).task()
    settings = [f"run.output={project / 'runs'}", "search.kind=best-of", f"backend.script={RECORDED}"]
    config = load_config(settings=[*settings, "sandbox.kind=bubblewrap", "judge.target=cpu"])
    folder = SearchFolder.create(task, config).path
    shutil.copytree(RECORDED, folder / "run-1")
    record = json.loads((folder / "search.json").read_text()) | {"runs": {"1": "run-1"}}
    (folder / "search.json").write_text(json.dumps(record))
    left = agent(project, "--resume", str(folder), "--plain")
    assert left.stdout is not None
    while "judging the winner again" not in (line := left.stdout.readline()):
        assert line, left.communicate()
    left.send_signal(number)
    errors = left.communicate()[1]
    assert left.returncode == 128 + number, errors
    assert f"leaving: the winner is not judged again; later: agent optimize --resume {folder}\n" in errors
    stored = json.loads((folder / "search.json").read_text())
    assert not stored["complete"] and [item["run"] for item in stored["tries"]] == ["run-1"]


class Author:
    """Submits torch's own arithmetic (policy open takes it); in a later round it edits what lies in the workspace."""

    def __init__(self, model: str) -> None:
        self.first = model.replace("class Model(", "class ModelNew(").replace("super(Model", "super(ModelNew")
        self.asked: list[tuple[bool, int]] = []
        self.stalls = True

    def __call__(self, body: Mapping[str, Any]) -> Step:
        said = sum(message["role"] == "assistant" for message in body["messages"])
        later = any("This is not the first try" in str(message.get("content")) for message in body["messages"])
        self.asked.append((later, said))
        if said:
            return reply("", [("submit", {"summary": "edited" if later else "as it was"})])
        if not later:
            write = ("write_file", {"path": "model_new.py", "content": self.first})
            return reply("", [write, ("verify", {})])
        edit = {"path": "model_new.py", "old": " + r", "new": ".add(r)"}
        return reply("", [("edit_file", edit), ("verify", {})]).after(300 if self.stalls else 0)


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_a_beam_that_was_killed_goes_on_from_its_accepted_seed(project: Path) -> None:
    author = Author((project / "model.py").read_text())
    with ScriptedServer(author) as http:
        options = ["--samples", "2", "--search", "beam", "--set", "search.rounds=2", "--policy", "open"]
        options += ["--base-url", http.base_url, "--model", "scripted", *HERE]
        with agent(project, "model.py", "--json", *options) as killed:
            assert killed.stdout is not None
            draining = threading.Thread(target=killed.stdout.read)  # events of two tries do not fit into a pipe
            draining.start()
            while (True, 0) not in author.asked:
                assert killed.poll() is None
                time.sleep(0.05)
            killed.kill()
            draining.join()
        author.stalls = False
        (folder,) = (project / "runs").iterdir()
        again = agent(project, "--resume", str(folder), "--json")
        out, errors = again.communicate()
        summary = json.loads(out.splitlines()[-1])
        assert (summary["rounds"], summary["parents"]) == ([1, 2], [None, 1]), errors
        assert summary["verdict"] is not None and summary["verdict"]["verdict"] == "accepted", (summary, errors)
        record = json.loads((folder / "search.json").read_text())
        assert record["complete"] and set(record["runs"].values()) == {Path(run).name for run in summary["runs"]}
        assert author.asked == [(False, 0), (False, 1), (True, 0), (True, 0), (True, 1)], "nothing is asked twice"
        second = RunFolder(Path(summary["runs"][1]))
        assert "+ r" in (second.seed / "model_new.py").read_text()
        assert ".add(r)" in (second.best / "model_new.py").read_text()
        verdicts = [read_outcome(RunFolder(Path(run))).verdict for run in summary["runs"]]
        assert [verdict and verdict.verdict for verdict in verdicts] == ["accepted", "accepted"]
        assert [item["verdict"] for item in record["confirmations"]] == [summary["verdict"]]
        assert again.returncode == summary["exit_code"] == (0 if summary["verdict"]["reward"] >= 2 else 1)
        assert (folder / f"judge-{record['winner']}.log").is_file()
        finished = agent(project, "--resume", str(folder), "--json")
        out, errors = finished.communicate()
        assert json.loads(out.splitlines()[-1]) == summary, errors
        assert len(author.asked) == 5
        other = agent(project, "--resume", str(folder), "--samples", "3")
        assert "goes on as it was begun" in other.communicate()[1] and other.returncode == 2
        alone = agent(project, "--resume", summary["runs"][0])
        assert f"agent optimize --resume {folder}" in alone.communicate()[1] and alone.returncode == 2
