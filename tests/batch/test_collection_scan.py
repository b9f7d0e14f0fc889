"""Where a sample stands is read from its folder, whatever a killed driver left there."""

from pathlib import Path

import pytest
from plans import REJECTED, make_collection, store_run

from agent.batch.collection import Collection, Plan
from agent.batch.faults import MOST_ATTEMPTS
from agent.batch.scan import History, Sample, apply_attempt, read_histories, read_sample, scan
from agent.trajectory.events import StopReason


def stand(collection: Collection, plan: Plan, history: History | None = None) -> Sample:
    return read_sample(collection, plan.tasks[0], 0, history=history)


def line(run: Path | None, collection: Collection, error: str | None) -> dict[str, object]:
    return {"task": "a", "sample": 0, "run": str(run.relative_to(collection.path)) if run else None, "error": error}


def test_a_settled_run_is_done_with_what_it_cost(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan)
    sample = stand(collection, plan)
    assert sample.state == "done" and sample.run == run.path
    assert sample.result is not None
    assert (sample.result.reward, sample.result.turns, sample.result.prompt_tokens) == (-1, 2, 10)


@pytest.mark.parametrize("tear", [False, True])
def test_a_run_cut_off_anywhere_is_gone_on_with(tmp_path: Path, tear: bool) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, with_verdict=False, end=False)
    if tear:
        with run.events.open("ab") as file:
            file.write(b'{"seq": 1, "t": 1.0, "type": "run_e')
        (run.path / "verdict.json").write_text('{"schema_version": 1, "rea')
    sample = stand(collection, plan)
    assert (sample.state, sample.run) == ("owed", run.path)


def test_a_verdict_whose_log_has_no_end_is_gone_on_with(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, end=False)
    assert (stand(collection, plan).state, stand(collection, plan).run) == ("owed", run.path)


def test_a_log_with_its_end_and_no_verdict_file_is_gone_on_with(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, with_verdict=False)
    assert (stand(collection, plan).state, stand(collection, plan).run) == ("owed", run.path)


@pytest.mark.parametrize("reason", [StopReason.BACKEND, StopReason.SANDBOX, StopReason.INTERNAL])
def test_what_infrastructure_ended_is_tried_again_beside_it(tmp_path: Path, reason: StopReason) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, reason=reason, verdict=None)
    sample = stand(collection, plan)
    assert (sample.state, sample.run, sample.burned) == ("new", None, 1)
    assert [lost.run for lost in sample.lost] == [run.path]
    history = History()
    apply_attempt(history, line(run.path, collection, sample.fault))
    again = stand(collection, plan, history)
    assert (again.state, again.burned, again.lost) == ("new", 1, ())


def test_the_attempts_are_counted_and_then_it_is_reported(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    for _ in range(3):
        run = store_run(collection, plan, reason=StopReason.SANDBOX, verdict=None)
        collection.attempts.append(line(run.path, collection, "sandbox") | {"detail": "it was lost"})
    histories = read_histories(collection)
    (sample,) = scan(collection, plan, histories=histories, forgiven={})
    assert (sample.state, sample.fault, sample.detail) == ("failed", "sandbox", "it was lost")
    (sample,) = scan(collection, plan, histories=histories, forgiven={("a", 0): 3})
    assert (sample.state, sample.burned) == ("new", 0)


def test_attempts_that_left_no_run_count_too(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a", samples=2)
    for _ in range(3):
        collection.attempts.append({"task": "a", "sample": 1, "run": None, "error": "sandbox"})
    states = [s.state for s in scan(collection, plan, histories=read_histories(collection), forgiven={})]
    assert states == ["new", "failed"]


def test_outages_and_lost_nodes_use_up_nothing(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, with_verdict=False, end=False)
    for error in ("outage", "worker", "outage", "worker", "disk_full"):
        collection.attempts.append(line(run.path, collection, error))
    (sample,) = scan(collection, plan, histories=read_histories(collection), forgiven={})
    assert (sample.state, sample.run, sample.burned) == ("owed", run.path, 0)
    for _ in range(9):
        collection.attempts.append(line(run.path, collection, "worker"))
    (sample,) = scan(collection, plan, histories=read_histories(collection), forgiven={})
    assert sample.state == "failed"


def test_what_the_judge_could_not_judge_is_judged_again(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, verdict=None, errors=("final: judge took longer",), end=False)
    history = History()
    apply_attempt(history, line(run.path, collection, "judge"))
    sample = stand(collection, plan, history)
    assert (sample.state, sample.run, sample.burned) == ("owed", run.path, 1)


def test_a_damaged_run_is_left_and_a_new_one_made(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, with_verdict=False, end=False)
    history = History()
    apply_attempt(history, line(run.path, collection, "record"))
    assert (stand(collection, plan, history).state, stand(collection, plan, history).run) == ("new", None)


def test_one_settled_run_is_enough_whatever_lies_beside_it(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    store_run(collection, plan, reason=StopReason.SANDBOX, verdict=None)
    settled = store_run(collection, plan)
    store_run(collection, plan, with_verdict=False, end=False)
    assert stand(collection, plan).run == settled.path


def test_a_task_that_the_controls_refuse_is_found_in_its_verdict(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    reasons = [{"code": "task.constant", "detail": "the output does not depend on the inputs"}]
    verdict = {**REJECTED, "verdict": "error", "correct": None, "reward": None, "reasons": reasons}
    store_run(collection, plan, verdict=verdict)
    sample = stand(collection, plan)
    assert sample.state == "refused"
    assert sample.detail == "the output does not depend on the inputs [task.constant]"


def test_half_made_folders_are_removed(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    hidden = collection.sample_folder(plan.tasks[0], 0) / ".new-0123"
    (hidden / "workspace").mkdir(parents=True)
    assert stand(collection, plan).state == "new"
    assert not hidden.exists()


def test_runs_that_a_full_disk_ended_use_up_no_attempt_where_their_lines_are_missing_too(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    for _ in range(MOST_ATTEMPTS):
        store_run(collection, plan, reason=StopReason.DISK_FULL, verdict=None)
    (sample,) = scan(collection, plan, histories={}, forgiven={})
    assert (sample.state, sample.burned, len(sample.lost)) == ("new", 0, MOST_ATTEMPTS)
