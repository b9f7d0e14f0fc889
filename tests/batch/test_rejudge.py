"""Stored submissions judged again: what changes is listed, what was is kept, whatever happens in between."""

import io
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from kept_runs import ACCEPTED, ROOT, finished_run
from plans import make_collection, store_run

from agent.batch.rejudge import run_rejudge
from agent.batch.rejudgement import changed, less_sure
from agent.batch.summary import refresh_summary
from agent.config import Config
from agent.errors import ConfigError, SandboxError
from agent.judging.version import judge_version
from agent.sandbox.open import check_bubblewrap
from agent.trajectory.folder import RunFolder
from agent.trajectory.stored import read_ending
from agent.view.verdicts import record_of

CASE = "first-row-for-all"
NO_SUBMISSION = "load.submission"


def rejudge(*paths: Path, **options: Any) -> dict[str, Any]:
    """What --json prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = run_rejudge(paths, flags=options.pop("flags", {}), as_json=True, **options)
    data: dict[str, Any] = json.loads(out.getvalue())
    assert data["exit_code"] == code
    return data


def past(folder: RunFolder) -> list[str]:
    return sorted(path.name for path in (folder.path / "verdicts").glob("*"))


@pytest.mark.torch
@pytest.mark.bubblewrap
def test_a_hack_that_was_once_accepted_is_rejected_now_and_its_old_verdict_kept(tmp_path: Path) -> None:
    report = check_bubblewrap(Config().sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")
    folder = finished_run(tmp_path, CASE)
    before = (folder.path / "verdict.json").read_bytes()
    data = rejudge(tmp_path)
    (run,) = data["runs"]
    assert run["status"] == "changed" and data["exit_code"] == 1, run
    assert set(run["changes"]) == {"verdict", "reward", "reasons"}
    assert (run["old"]["reward"], run["new"]["reward"]) == (3, -1)
    assert run["new"]["reasons"][0]["code"].startswith("numeric.")
    assert (folder.path / "verdicts" / "original.json").read_bytes() == before
    ending = read_ending(folder)
    assert ending is not None and ending.settled and ending.reward == -1
    record = json.loads((folder.path / "verdict.json").read_bytes())
    assert record["judge"]["tools_sha256"] == judge_version().tools_sha256
    assert record["replaces"] == "original.json"


def test_what_these_tools_have_judged_is_left_alone_unless_forced(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, stored=False)
    assert rejudge(tmp_path)["counts"]["changed"] == 1
    first = past(folder)
    again = rejudge(tmp_path)
    assert again["counts"]["skipped"] == 1 and again["exit_code"] == 0 and past(folder) == first
    forced = rejudge(tmp_path, force=True)
    assert forced["counts"]["same"] == 1 and forced["exit_code"] == 0
    assert set(first) < set(past(folder)) and len(past(folder)) == 3


def test_other_rules_are_another_judgement(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, stored=False)
    rejudge(tmp_path)
    data = rejudge(tmp_path, flags={"judge.policy": "open"})
    assert data["counts"]["same"] == 1
    assert json.loads((folder.path / "verdict.json").read_bytes())["best"]["policy"] == "open"


def test_the_summary_of_a_collection_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection, plan, _ = make_collection(tmp_path, "a", "b")
    for task in range(2):
        store_run(collection, plan, task=task, verdict=ACCEPTED)
    assert refresh_summary(collection)
    before = json.loads((tmp_path / "summary.json").read_bytes())
    assert (before["rewards"]["3"], before["by_task"][0]["best_speedup"]) == (2, 7.0)
    RunFolder(tmp_path).write_json("summary.json", before | {"time": {"command_s": 7.5}})
    assert rejudge(tmp_path)["counts"]["changed"] == 2
    after = json.loads((tmp_path / "summary.json").read_bytes())
    assert (after["rewards"]["3"], after["rewards"]["-1"], after["by_task"][0]["best_speedup"]) == (0, 2, None)
    assert (after["time"], after["prompt_tokens"]) == ({"command_s": 7.5}, before["prompt_tokens"])
    assert "| -1 | 2 |" in (tmp_path / "summary.md").read_text()
    with collection.lock():
        rejudge(tmp_path, force=True, flags={"judge.policy": "open"})
    assert "is as it was" in capsys.readouterr().err


def test_a_dry_run_lists_and_changes_nothing(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE)
    files = sorted(folder.path.rglob("*"))
    data = rejudge(tmp_path, dry_run=True)
    assert data["counts"]["planned"] == 1 and data["runs"][0]["detail"] == "best"
    assert set(folder.path.rglob("*")) - set(files) <= {folder.path / ".lock"}


def test_only_accepted_leaves_the_others(tmp_path: Path) -> None:
    finished_run(tmp_path, CASE, stored=False)
    rejudge(tmp_path)
    finished_run(tmp_path, CASE, stored=False)
    data = rejudge(tmp_path, only_accepted=True, force=True)
    assert (data["counts"]["changed"], data["counts"]["skipped"]) == (1, 1)


def test_trouble_leaves_the_old_verdict_and_is_listed(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, sandbox="docker")
    before = (folder.path / "verdict.json").read_bytes()
    # The run names its own sandbox, so that only judging it shows that there is none.
    config = json.loads((folder.path / "config.json").read_bytes())
    config["sandbox"]["image"] = "localhost:1/there-is-no-such-image:x"
    folder.write_json("config.json", config)
    data = rejudge(tmp_path)
    assert data["runs"][0]["status"] == "trouble" and data["exit_code"] == 3
    assert data["runs"][0]["detail"].startswith("best: ")
    assert (folder.path / "verdict.json").read_bytes() == before
    assert not (folder.path / "verdicts").exists()


def test_consent_to_run_unconfined_is_not_inherited(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE)
    config = json.loads((folder.path / "config.json").read_bytes())
    config["sandbox"] |= {"kind": "none", "i_understand": True}
    folder.write_json("config.json", config)
    data = rejudge(tmp_path)
    assert data["runs"][0]["status"] == "trouble"
    assert "without protection" in data["runs"][0]["detail"]


def test_a_damaged_run_does_not_stop_the_others(tmp_path: Path) -> None:
    torn, foreign, owed = (finished_run(tmp_path, CASE, stored=False) for _ in range(3))
    fine = finished_run(tmp_path, CASE, stored=False)
    (torn.path / "verdict.json").write_text('{"schema_version": 1, "reason"')
    foreign.write_json("config.json", {"judge": {"of_another_version": True}})
    (owed.path / "verdict.json").unlink()
    by_run = {run["run"]: run for run in rejudge(tmp_path)["runs"]}
    assert by_run[str(torn.path)]["status"] == "trouble"
    assert "of_another_version" in by_run[str(foreign.path)]["detail"]
    assert by_run[str(owed.path)]["status"] == "skipped"
    assert by_run[str(fine.path)]["status"] == "changed"


def test_a_run_that_somebody_writes_is_not_touched(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, stored=False)
    with folder.lock():
        data = rejudge(tmp_path)
    assert data["runs"][0]["status"] == "trouble" and "in use" in data["runs"][0]["detail"]


def test_a_final_state_that_is_not_stored_counts_no_longer(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, stored=False)
    record = json.loads((folder.path / "verdict.json").read_bytes())
    folder.write_json("verdict.json", record | {"final": record["best"], "counts": "final"})
    (run,) = rejudge(tmp_path)["runs"]
    assert "final is not stored" in run["detail"]
    assert run["new"]["counts"] == "best" and run["new"]["reward"] == -1


def test_nothing_stored_is_nothing_to_judge(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, stored=False)
    shutil.rmtree(folder.best)
    assert rejudge(tmp_path)["runs"][0]["status"] == "skipped"


def test_a_verdict_that_did_not_get_into_its_place_is_put_there(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, stored=False)
    before = (folder.path / "verdict.json").read_bytes()
    rejudge(tmp_path)
    judged, files = (folder.path / "verdict.json").read_bytes(), past(folder)
    (folder.path / "verdict.json").write_bytes(before)  # as a kill right before the replacement leaves it
    assert rejudge(tmp_path)["counts"]["changed"] == 1
    assert (folder.path / "verdict.json").read_bytes() == judged
    assert past(folder) == files


def test_a_verdict_that_somebody_else_wrote_in_between_is_kept_too(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, CASE, stored=False)
    rejudge(tmp_path)
    record = json.loads((folder.path / "verdict.json").read_bytes())
    folder.write_json("verdict.json", {k: v for k, v in record.items() if k != "judge"} | {"reward": None})
    between = (folder.path / "verdict.json").read_bytes()
    rejudge(tmp_path)
    kept = [path.read_bytes() for path in (folder.path / "verdicts").iterdir()]
    assert between in kept and (folder.path / "verdict.json").read_bytes() in kept


DRIVER = """
import sys
from pathlib import Path
from agent.batch.rejudge import run_rejudge
sys.exit(run_rejudge([Path(sys.argv[1])], flags={}, workers=2))
"""


def test_killed_at_any_moment_nothing_is_lost_and_the_next_call_goes_on(tmp_path: Path) -> None:
    runs = [finished_run(tmp_path / "runs", CASE, stored=False) for _ in range(30)]
    before = {run.path: (run.path / "verdict.json").read_bytes() for run in runs}
    chance, kills = random.Random(5), 0
    for round_number in range(1, 6):
        with start(tmp_path / "runs") as driver:
            while driver.poll() is None and len(list(tmp_path.rglob("original.json"))) < 4 * round_number:
                time.sleep(chance.uniform(0.0, 0.01))
            if driver.poll() is None:
                driver.send_signal(signal.SIGKILL)
                kills += 1
        for run in runs:
            present = (run.path / "verdict.json").read_bytes()
            known = [path.read_bytes() for path in (run.path / "verdicts").glob("[!.]*.json")]
            assert before[run.path] == present or (before[run.path] in known and present in known)
    assert kills >= 2
    with start(tmp_path / "runs") as driver:
        assert driver.wait() in (0, 1)
    for run in runs:
        ending = read_ending(run)
        assert ending is not None and ending.reward == -1
        names = [name for name in past(run) if not name.startswith(".")]
        assert "original.json" in names and len(names) == 2, names


def test_a_person_can_stop_it(tmp_path: Path) -> None:
    for _ in range(60):
        finished_run(tmp_path / "runs", CASE, stored=False)
    with start(tmp_path / "runs") as driver:
        while driver.poll() is None and not list(tmp_path.rglob("original.json")):
            time.sleep(0.005)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(60) in (130, 1)
    data = rejudge(tmp_path / "runs")
    assert data["counts"]["changed"] + data["counts"]["skipped"] == 60


def start(runs: Path) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", DRIVER, str(runs)], cwd=ROOT, **quiet)


def test_what_cannot_be_asked_for_is_said_at_once(tmp_path: Path) -> None:
    finished_run(tmp_path, CASE, stored=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigError, match="no run in"):
        run_rejudge([empty], flags={})
    with pytest.raises(ConfigError, match="unknown setting"):
        run_rejudge([tmp_path], flags={}, settings=["judge.polcy=open"])
    with pytest.raises(ConfigError, match="without protection"):
        run_rejudge([tmp_path], flags={"sandbox.kind": "none"})
    with pytest.raises((SandboxError, ConfigError)):
        run_rejudge([tmp_path], flags={"sandbox.kind": "docker", "sandbox.image": "localhost:1/no-such-image:x"})


def timed(reward: int, low: float, high: float, call: str = "faster", **more: Any) -> Any:
    speedup = {"ratio": (low + high) / 2, "low": low, "high": high, "call": call}
    best = {"verdict": "accepted", "reward": reward, "reasons": [], "speedup": {"eager": speedup}} | more
    return record_of({"reason": "submitted", "reward": reward, "best": best, "counts": "best", "errors": []})


def test_a_timing_has_moved_only_where_the_intervals_have_nothing_in_common() -> None:
    assert changed(timed(2, 1.5, 2.0), timed(2, 1.9, 2.4)) == ()
    assert changed(timed(2, 1.5, 2.0), timed(2, 2.1, 2.4)) == ("eager",)


def test_a_busy_machine_takes_no_reward_away() -> None:
    old = timed(2, 1.5, 2.0)
    assert "over eager; is the machine busy?" in less_sure(old, timed(1, 0.7, 8.7, "inconclusive"))
    # As sure as before, and slower: that is a finding. So is a rejection, a higher reward, another rule.
    assert less_sure(old, timed(1, 1.0, 1.1, "inconclusive")) == ""
    assert less_sure(old, timed(1, 0.7, 0.9, "slower")) == ""
    assert less_sure(old, timed(-1, 0.7, 8.7, "inconclusive", verdict="rejected")) == ""
    assert less_sure(timed(1, 0.9, 1.3, "inconclusive"), timed(2, 1.1, 1.2)) == ""
    assert less_sure(old, timed(1, 0.7, 8.7, "inconclusive", policy="open")) == ""


def test_a_busy_machine_excuses_no_hack_and_nothing_that_is_gone() -> None:
    """A wide interval of one submission says nothing about another one."""
    old, wide = timed(3, 1.5, 2.0), timed(1, 0.7, 8.7, "inconclusive")
    plain = wide.raw["best"]
    hack = {"verdict": "rejected", "reward": -1, "reasons": [{"code": "a.hack", "detail": "was learned"}]}
    caught = record_of(dict(wide.raw) | {"best": hack, "final": plain, "counts": "final"})
    assert less_sure(old, wide) != "" and less_sure(old, caught) == ""
    gone = record_of(dict(wide.raw) | {"best": None, "final": plain, "counts": "final"})
    assert less_sure(old, gone) == ""
    both = record_of(dict(old.raw) | {"final": old.raw["best"]})
    assert less_sure(both, record_of(dict(wide.raw) | {"final": hack})) == ""
    assert less_sure(both, record_of(dict(wide.raw) | {"final": plain})) != ""
