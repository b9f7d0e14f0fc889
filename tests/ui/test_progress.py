"""What a person wants to know while a run goes on, folded from events."""

from collections.abc import Iterable
from pathlib import Path

from recorded import Recorder, whole_run

from agent.trajectory.events import Event, StopReason
from agent.trajectory.reader import read_events
from agent.ui.progress import Progress


def fold(events: Iterable[Event]) -> Progress:
    progress = Progress()
    for event in events:
        progress.add(event)
    return progress


def test_a_whole_run_is_folded(tmp_path: Path) -> None:
    progress = fold(whole_run(tmp_path).events)
    assert progress.turn == 4
    assert progress.tokens == 4 * 2150
    assert progress.actions == {"write_file": 1, "compile": 2, "bash": 1, "edit_file": 1, "profile": 1, "submit": 1}
    assert (progress.best_speedup, progress.best_turn) == (1.21, 3)
    assert progress.reason is StopReason.SUBMITTED
    assert set(progress.verdicts) == {"best", "final"}
    assert progress.open_call is None
    assert [path for path, _ in progress.diffs[1]] == ["kernels/bias_relu.cpp"]


def test_every_prefix_of_a_log_has_a_state(tmp_path: Path) -> None:
    run = whole_run(tmp_path)
    events = list(read_events(run.folder.events))
    turns = [fold(events[:count]).turn for count in range(len(events) + 1)]
    assert turns == sorted(turns)
    assert turns[0] == 0
    assert turns[-1] == 4


def test_an_action_under_way_is_known(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "first")
    run.action(1, "bash", {"command": "sleep 5"})
    open_call = fold(run.events).open_call
    assert open_call is not None
    assert open_call.arguments == {"command": "sleep 5"}


def test_one_call_without_a_price_makes_the_sum_unknown(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "priced", cost_usd=0.02)
    assert fold(run.events).cost_usd == 0.02
    run.reply(2, "priced", cost_usd=0.03)
    assert fold(run.events).cost_usd == 0.05
    run.reply(3, "unpriced")
    assert fold(run.events).cost_usd is None
    run.reply(4, "priced", cost_usd=0.03)
    assert fold(run.events).cost_usd is None


def test_the_pause_before_a_resumption_is_not_time_at_work(tmp_path: Path) -> None:
    run = Recorder(tmp_path)
    run.reply(1, "first")
    run.stop(StopReason.CANCELLED)
    run.resumed()
    run.reply(2, "second")
    clock = {"run_start": 0.0, "stop": 20.0, "resumed": 9000.0}
    now, events = 0.0, []
    for event in run.events:
        now = clock.get(event.type, now + 3.0)
        events.append(event.model_copy(update={"t": now}))
    progress = fold(events)
    assert progress.elapsed_s == 20.0 + 3.0
    assert progress.stop is None
