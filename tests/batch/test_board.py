"""What is counted, what a budget sees, and what a person is shown."""

import io
import json
from pathlib import Path

import pytest
from plans import make_collection, store_run
from rich.console import Console

from agent.backends.base import Reply, Usage
from agent.batch.board import Board, Row
from agent.batch.executor import Job, Moved
from agent.batch.progress import PlainView, picture, status_line
from agent.batch.scan import Result, Sample
from agent.batch.spending import Amount, JobBudget, Spending, amount_of
from agent.batch.summary import markdown, summarise, write_summary
from agent.loop.control import Status
from agent.trajectory.events import ReplyEvent, StopReason

KEY = ("a", 0)


def said(tokens: int, cost_usd: float | None) -> ReplyEvent:
    usage = Usage(prompt_tokens=tokens, completion_tokens=1, cost_usd=cost_usd)
    return ReplyEvent(seq=0, t=0.0, turn=1, reply=Reply(usage=usage))


def test_running_and_ended_runs_are_counted_once(tmp_path: Path) -> None:
    spending = Spending()
    run = tmp_path / "run"
    spending.begin(KEY, None)
    spending.see(KEY, said(99, 0.5))
    assert (spending.now.tokens, spending.ended.tokens) == (100, 0)
    spending.end(KEY, run, amount_of(150, 50, 1.0), device_s=7.0)
    assert (spending.now.tokens, spending.now.total_cost_usd) == (200, 1.0)
    spending.begin(KEY, run)  # judged again: its log is read, and it does not count twice
    assert spending.now.tokens == 0
    spending.end(KEY, run, amount_of(150, 50, 1.0))
    assert (spending.now.tokens, spending.device_s) == (200, 7.0)


def test_what_an_owed_run_had_spent_counts_from_its_log(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, with_verdict=False, end=False)
    with run.events.open("ab") as file:
        file.write(json.dumps(said(40, None).model_dump(mode="json") | {"seq": 1}).encode() + b"\n")
    spending = Spending()
    spending.begin(KEY, run.path)
    assert spending.now == Amount(40, 1, 0.0, 1)
    assert spending.now.total_cost_usd is None


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (JobBudget(), ""),
        (JobBudget(tokens=200), ""),
        (JobBudget(tokens=100), "100 tokens"),
        (JobBudget(cost_usd=0.25), "0.25 US dollars"),
        (JobBudget(time_s=10), "10 seconds"),
        (JobBudget(device_s=3), "3 device seconds"),
    ],
)
def test_a_budget_is_over_when_it_is_used_up(budget: JobBudget, words: str) -> None:
    spending = Spending()
    spending.begin(KEY, None)
    spending.see(KEY, said(99, 0.5))
    spending.device_s = 4.0
    found = spending.over(budget, elapsed_s=11.0)
    assert found == (f"the job's budget of {words} is used up" if words else "")


def board_of(tmp_path: Path) -> Board:
    board = Board(3, 2, Spending())
    result = Result(tmp_path / "r", StopReason.SUBMITTED, 3, speedup_eager=2.0, speedup_compile=1.5)
    board.place(Sample(("a", 0), "done", result.run, result))
    board.place(Sample(("a", 1), "done", tmp_path / "s", Result(tmp_path / "s", StopReason.CANCELLED, None)))
    board.place(Sample(("b", 0), "failed", fault="sandbox", detail="it was lost"))
    for key in (("b", 1), ("c|d", 0), ("c|d", 1)):
        board.place(Sample(key, "new"))
    return board


def test_places_are_moved_not_added(tmp_path: Path) -> None:
    board = board_of(tmp_path)
    assert (board.count("done"), board.count("new"), board.count("failed")) == (2, 3, 1)
    assert board.rewards == {"-1": 0, "1": 0, "2": 0, "3": 1, "none": 1}
    board.place(Sample(("a", 0), "refused"))
    assert (board.count("done"), board.rewards["3"]) == (1, 0)
    assert board.eta_s is None
    board.ended_here = 1
    assert board.eta_s is not None and board.eta_s >= 0


def test_the_table_has_a_row_per_running_episode_and_fits(tmp_path: Path) -> None:
    board = board_of(tmp_path)
    for sample in range(30):
        board.rows["b", sample] = Row("b", sample, 0, 0.0, "acting", "bash \x1b[31mls", 7)
    board.trouble = "waiting for the language model: \x1b[2Jnobody"
    out = io.StringIO()
    Console(file=out, width=100, height=20, force_terminal=False).print(picture(board, height=20))
    text = out.getvalue()
    assert "3/6" in text and "30 running" in text and "… and 17 more" in text
    assert "\x1b" not in text and "\\x1b[31mls" in text
    assert len(text.splitlines()) <= 20


def test_rows_follow_what_jobs_tell(tmp_path: Path) -> None:
    _, plan, (task,) = make_collection(tmp_path, "a")
    board = Board(1, 1, Spending())
    board.start(Job(task=task, sample=0, attempt=1, folder=tmp_path, config=plan.settings))
    board.move(Moved(KEY, status=Status("acting", "bash ls", 4, 0.0)))
    board.move(Moved(KEY, event=said(1, None).model_copy(update={"turn": 5})))
    board.move(Moved(("gone", 0), event=said(1, None)))
    assert (board.rows[KEY].phase, board.rows[KEY].turn) == ("acting", 5)


def test_one_line_says_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of(tmp_path)
    assert "2/6 done, 0 running, 3 owed · 1 failed, 0 refused · rewards -1:0 1:0 2:0 3:1 none:1" in status_line(board)
    view = PlainView(every_s=0.0)
    view.update(board)
    view.say("two\nlines\x1b[2J")
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("2/6 done") and shown[1] == "two lines\\x1b[2J"


def test_the_summary_counts_samples(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a", "b", "c|d", samples=2)
    board = board_of(tmp_path)
    board.refused["x"] = "no [task.x]"
    found = summarise(plan, board)
    write_summary(collection, found)
    assert json.loads((tmp_path / "summary.json").read_text()) == found
    assert found["episodes"] == {"total": 6, "done": 2, "owed": 3, "failed": 1, "refused": 0}
    assert (found["verified"], found["faster"], found["complete"]) == (1, 1, False)
    assert found["by_task"][0] == {"id": "a", "done": 2, "rewards": [3, None], "best_speedup": 1.5}
    assert found["errors"] == {"sandbox": 1} and found["reasons"] == {"cancelled": 1, "submitted": 1}
    text = markdown(found)
    assert "| a | 3, – | 1.50× |" in text and "- failed: b, sample 0: sandbox: it was lost" in text
    assert "- refused: x: no [task.x]" in text and "c\\|d" not in text.splitlines()[0]
