"""Real collections: replayed turns, sandboxes, the judge; what is on disk afterwards is what counts."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import QUICK, Collect, Start
from plans import TEXT, write_script, write_tasks

from agent.backends.scripted_server import ScriptedServer
from agent.backends.scripted_steps import Step, error, reply
from agent.batch.driver import Orders
from agent.batch.patience import MOST_STRIKES
from agent.batch.spending import JobBudget
from agent.errors import ConfigError, RecordError
from agent.trajectory.events import ObservationEvent, ReplyEvent
from agent.trajectory.reader import read_events
from agent.trajectory.stored import find_runs, read_ending

pytestmark = [pytest.mark.bubblewrap, pytest.mark.torch]
LOOK = ("ls", "cat model.py | head -3")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summary(collection: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((collection / "summary.json").read_text())
    return found


def settled(collection: Path) -> Counter[tuple[str, str]]:
    """(task folder, sample) -> runs with a verdict that stays."""
    found: Counter[tuple[str, str]] = Counter()
    for run in find_runs([collection]):
        ending = read_ending(run)
        found[run.path.parts[-3], run.path.parts[-2]] += ending is not None and ending.settled
    return found


def test_every_sample_gets_its_verdict_and_the_command_again_changes_nothing(collect: Collect, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "level1/a", "level1/b", "c")
    with tasks.open("a") as file:
        file.write("this is no JSON\n")
    write_script(tmp_path / "scripts" / "level1" / "a" / "0.md", *LOOK)
    write_script(tmp_path / "scripts" / "level1" / "a" / "1.md", "head -c 5000000 /dev/zero | tr '\\0' x")
    write_script(tmp_path / "scripts" / "level1" / "b.md", r"printf '\xff\xfe\x80 \x1b[2J\n'; head -c 300 /dev/urandom")
    write_script(tmp_path / "scripts" / "c" / "turns.md", *["false"] * 9)
    out = tmp_path / "collection"
    flags = {"backend.script": str(tmp_path / "scripts")}
    assert collect(tasks, samples=2, workers=4, flags=flags) == 0
    assert set(settled(out).values()) == {1} and len(settled(out)) == 6
    first = summary(out)
    assert first["complete"] and first["rewards"]["-1"] == 6
    assert first["reasons"] == {"script_end": 4, "stuck": 2}
    assert [task["id"] for task in first["by_task"]] == ["level1/a", "level1/b", "c"]
    assert [(line["code"], "tasks.jsonl:4" in line["line"]) for line in lines(out / "refused.jsonl")] == [
        ("not_json", True)
    ]
    attempts = lines(out / "attempts.jsonl")
    assert Counter((line["task"], line["sample"], line["error"]) for line in attempts) == {
        (task, sample, None): 1 for task in ("level1/a", "level1/b", "c") for sample in (0, 1)
    }
    assert all((out / line["run"] / "verdict.json").is_file() for line in attempts)
    before = sorted(
        (path, path.stat().st_mtime_ns) for path in out.rglob("*") if path.name.endswith((".json", ".jsonl"))
    )
    assert collect(tasks, samples=2, workers=4, flags=flags) == 0
    after = sorted(
        (path, path.stat().st_mtime_ns) for path in out.rglob("*") if path.name.endswith((".json", ".jsonl"))
    )
    changed = {path.name for (path, was), (_, now) in zip(before, after, strict=True) if was != now}
    assert changed <= {"summary.json"}
    assert {**summary(out), "time": 0} == {**first, "time": 0}
    big = next(run for run in find_runs([out]) if run.path.parts[-2] == "1" and "level1-a" in run.path.parts[-3])
    (seen,) = [event for event in read_events(big.events) if isinstance(event, ObservationEvent)]
    assert len(seen.text) < 40_000 and (big.path / str(seen.log)).stat().st_size == 5_000_000
    with pytest.raises(ConfigError, match="collects 2 samples per task, not 1"):
        collect(tasks, samples=1, flags=flags)


def test_a_task_that_is_none_is_refused_once(collect: Collect, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "bad", text=TEXT.replace("x * 2.0", "undefined_name"))
    with tasks.open("a") as file:
        file.write(json.dumps({"id": "good", "code": TEXT}) + "\n")
    script = write_script(tmp_path / "s.md", "true")
    assert collect(tasks, samples=3, workers=6, flags={"backend.script": str(script)}) == 0
    out = tmp_path / "collection"
    (refused,) = lines(out / "refused.jsonl")
    assert refused["id"] == "bad" and "undefined_name" in refused["detail"] and refused["code"].startswith("task")
    assert sum(line["task"] == "bad" for line in lines(out / "attempts.jsonl")) == 1
    assert summary(out)["episodes"] == {"total": 6, "done": 3, "owed": 0, "failed": 0, "refused": 3}
    assert len(settled(out)) == 3
    assert collect(tasks, samples=3, flags={"backend.script": str(script)}) == 0
    assert len(lines(out / "refused.jsonl")) == 1 and len(lines(out / "attempts.jsonl")) == 4


def test_a_task_that_took_too_long_to_look_at_is_not_refused_for_good(collect: Collect, tmp_path: Path) -> None:
    slow = TEXT.replace("return [torch.rand", "import time; time.sleep(60); return [torch.rand")
    tasks = write_tasks(tmp_path / "tasks.jsonl", "slow", text=slow)
    flags = {"backend.script": str(write_script(tmp_path / "s.md", "true")), "limits.tool_timeout_s": 0.5}
    assert collect(tasks, flags=flags) == 3
    out = tmp_path / "collection"
    assert summary(out)["errors"] == {"unclear": 1} and not (out / "refused.jsonl").exists()
    assert [line["error"] for line in lines(out / "attempts.jsonl")] == ["unclear"] * 3


def test_a_clock_that_jumps_costs_nothing(collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set back a day and forward a day, again and again; limits and order are those of the monotonic clock."""
    real, calls = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: real() + 86_400 * (next(calls) % 3 - 1))
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a", "b")
    flags = {"backend.script": str(write_script(tmp_path / "s.md", "true", "ls")), "limits.time_s": 3600.0}
    orders = replace(QUICK, budget=JobBudget(time_s=3600))
    assert collect(tasks, samples=2, workers=2, flags=flags, orders=orders) == 0
    out = tmp_path / "collection"
    assert summary(out)["reasons"] == {"script_end": 4} and set(settled(out).values()) == {1}
    assert all(line["seconds"] < 3600 for line in lines(out / "attempts.jsonl"))
    assert collect(tasks, samples=2, workers=2, flags=flags, orders=orders) == 0
    assert len(lines(out / "attempts.jsonl")) == 4


def test_a_collection_of_an_older_version_goes_on(collect: Collect, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a")
    flags = {"backend.script": str(write_script(tmp_path / "s.md", "true"))}
    assert collect(tasks, samples=2, flags=flags) == 0
    out = tmp_path / "collection"
    first, second = sorted(find_runs([out]), key=lambda run: run.path)
    plan = json.loads((out / "collection.json").read_bytes())
    for place in (out / "collection.json", second.path / "config.json"):
        # As it would be without what has been added since: these settings have their defaults.
        data = json.loads(place.read_bytes())
        settings = data.get("settings", data)
        del settings["search"], settings["limits"]["log_mb"], settings["sandbox"]["shm_gb"]
        place.write_text(json.dumps(data | {"agent_version": "0.0.1"} if "settings" in data else data))
    (second.path / "verdict.json").unlink()
    log = (second.path / "events.jsonl").read_bytes().splitlines(keepends=True)
    (second.path / "events.jsonl").write_bytes(b"".join(log[:4]))
    assert collect(tasks, samples=2, flags=flags) == 0
    assert set(settled(out).values()) == {1} and sorted(run.path for run in find_runs([out])) == [
        first.path,
        second.path,
    ]
    assert plan["tasks"] == json.loads((out / "collection.json").read_bytes())["tasks"]
    damaged = json.loads((out / "collection.json").read_bytes()) | {"schema_version": 2}
    (out / "collection.json").write_text(json.dumps(damaged))
    with pytest.raises(ConfigError, match=r"collection\.json is damaged"):
        collect(tasks, samples=2, flags=flags)


class Server:
    """Answers by the number of requests so far."""

    def __init__(self) -> None:
        self.down = False
        self.asked = 0
        self.after = 10**9

    def __call__(self, body: Mapping[str, Any]) -> Step:
        self.asked += 1
        said = sum(message.get("role") == "assistant" for message in body["messages"])
        if self.down or self.asked > self.after:
            self.down = True
            return error(503, "overloaded")
        return reply("Next.", [("bash", {"command": f"echo {said}"})]) if said < 3 else reply("I am done.")


@pytest.fixture
def server() -> Iterator[tuple[Server, dict[str, Any]]]:
    answers = Server()
    with ScriptedServer(answers) as http:
        flags = {"backend.base_url": http.base_url, "backend.model": "scripted", "backend.max_attempts": 1}
        yield answers, {**flags, "backend.price_in_per_mtok": 1000.0, "backend.price_out_per_mtok": 1000.0}


def test_an_outage_uses_up_no_attempt_and_loses_no_turn(
    collect: Collect, server: tuple[Server, dict[str, Any]], tmp_path: Path
) -> None:
    answers, flags = server
    answers.after = 4
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a", "b")

    def repair() -> None:
        while not answers.down:
            time.sleep(0.05)
        time.sleep(3)
        answers.after, answers.down = 10**9, False

    thread = threading.Thread(target=repair)
    thread.start()
    assert collect(tasks, samples=2, workers=4, flags=flags) == 0
    thread.join()
    out = tmp_path / "collection"
    assert summary(out)["reasons"] == {"format_errors": 4}
    assert [line["error"] for line in lines(out / "attempts.jsonl")] == [None] * 4
    runs = list(find_runs([out]))
    assert len(runs) == 4
    for run in runs:
        turns = [event.turn for event in read_events(run.events) if isinstance(event, ReplyEvent)]
        assert turns == [1, 2, 3, 4, 5, 6]


def test_a_conversation_that_cannot_be_answered_holds_up_nobody(collect: Collect, tmp_path: Path) -> None:
    """The first one whose observation is seen is the one that the server fails on, whatever it is asked."""
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a")
    cursed: list[str] = []
    refused: list[str] = []

    def respond(body: Mapping[str, Any]) -> Step:
        seen = [str(m["content"]) for m in body["messages"] if m["role"] == "tool"]
        if not seen:
            return reply("Who am I?", [("bash", {"command": "cat /proc/sys/kernel/random/uuid"})])
        cursed[:] = cursed or [seen[0]]
        if seen[0] == cursed[0]:
            refused.append(seen[0])
            return error(500, "it does not fit")
        goes_on = len(refused) <= MOST_STRIKES
        return reply("Hm.", [("bash", {"command": f"echo {len(seen)}"})] if goes_on else []).after(0.2)

    with ScriptedServer(respond) as http:
        flags = {"backend.base_url": http.base_url, "backend.model": "scripted", "backend.max_attempts": 1}
        assert collect(tasks, samples=2, workers=2, flags=flags) == 0
    attempts = lines(tmp_path / "collection" / "attempts.jsonl")
    assert Counter(line["error"] for line in attempts) == {"backend": 1, None: 2}


def test_the_budget_of_the_job_ends_what_runs_with_a_verdict(
    collect: Collect, server: tuple[Server, dict[str, Any]], tmp_path: Path
) -> None:
    _, flags = server
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a", "b", "c")
    orders = Orders(budget=JobBudget(cost_usd=0.4), patience=QUICK.patience)
    assert collect(tasks, workers=1, flags=flags, orders=orders) == 1
    found = summary(tmp_path / "collection")
    assert 0.4 <= found["cost_usd"] < 0.8
    assert found["episodes"]["owed"] >= 1 and not found["complete"]
    assert all(count == 1 for count in settled(tmp_path / "collection").values())
    assert collect(tasks, workers=1, flags=flags, orders=orders) == 1
    assert {**summary(tmp_path / "collection"), "time": 0} == {**found, "time": 0}
    assert collect(tasks, workers=3, flags=flags) == 0
    assert summary(tmp_path / "collection")["complete"]


def test_a_wrong_key_stops_the_job_and_costs_no_attempt(collect: Collect, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a", "b")
    refusals = iter([False] + [True] * 99)

    def respond(body: Mapping[str, Any]) -> Step:
        return error(403, "not for you") if next(refusals) else reply("Hm.")

    with ScriptedServer(respond) as http:
        flags = {"backend.base_url": http.base_url, "backend.model": "scripted"}
        assert collect(tasks, workers=1, flags=flags) == 3
    assert lines(tmp_path / "collection" / "attempts.jsonl") == []
    with ScriptedServer(lambda body: reply("Hm.")) as http:
        assert collect(tasks, workers=2, flags={**flags, "backend.base_url": http.base_url}) == 0
    assert summary(tmp_path / "collection")["reasons"] == {"format_errors": 2}


def test_what_fails_again_and_again_is_reported_and_tried_anew_when_asked(collect: Collect, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a")
    broken = True

    def respond(body: Mapping[str, Any]) -> Step:
        return error(400, "this server does not like the request") if broken else reply("Hm.")

    with ScriptedServer(respond) as http:
        flags = {"backend.base_url": http.base_url, "backend.model": "scripted"}
        assert collect(tasks, flags=flags) == 3
        out = tmp_path / "collection"
        assert [line["error"] for line in lines(out / "attempts.jsonl")] == ["backend"] * 3
        assert summary(out)["errors"] == {"backend": 1}
        assert collect(tasks, flags=flags) == 3
        assert len(lines(out / "attempts.jsonl")) == 3
        broken = False
        assert collect(tasks, flags=flags, orders=Orders(retry_errors=True)) == 0
    assert summary(out)["episodes"]["done"] == 1
    assert sum(settled(out).values()) == 1


def wait_for(program: "subprocess.Popen[str]", path: Path, pattern: str) -> None:
    while not any(path.glob(pattern)):
        assert program.poll() is None, program.communicate()[0]
        time.sleep(0.05)


def test_the_first_signal_drains_and_the_second_leaves(start: Start, tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a", "b", "c")
    script = write_script(tmp_path / "s.md", "sleep 2", "touch here; sleep 600", "ls")
    out = tmp_path / "collection"
    program = start(tasks, "--script", str(script), "--workers", "1")
    wait_for(program, out, "tasks/*/0/*/workspace/here")
    program.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    said, _ = program.communicate(timeout=60)
    assert program.returncode == 128 + signal.SIGTERM, said
    assert "draining: 1 running" in said and "stopping: running episodes are left" in said
    assert sum(settled(out).values()) == 0 and summary(out)["episodes"]["owed"] == 3
    (run,) = find_runs([out])
    assert read_ending(run) is None and len(list(read_events(run.events))) > 6


def test_a_killed_driver_is_gone_on_with_and_a_second_one_is_refused(
    start: Start, collect: Collect, tmp_path: Path
) -> None:
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a", "b")
    script = write_script(tmp_path / "s.md", "ls", "touch here; sleep 3", "echo done")
    out, flags = tmp_path / "collection", {"backend.script": str(script)}
    program = start(tasks, "--script", str(script), "--samples", "2", "--workers", "2")
    wait_for(program, out, "tasks/*/0/*/workspace/here")
    with pytest.raises(RecordError, match=f"worked on by process {program.pid}"):
        collect(tasks, samples=2, flags=flags)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    assert collect(tasks, samples=2, workers=4, flags=flags) == 0
    assert len(settled(out)) == 4 and set(settled(out).values()) == {1}
    assert len(list(find_runs([out]))) == 4
    assert [line["error"] for line in lines(out / "attempts.jsonl")] == [None] * 4


def test_a_full_disk_is_said_and_nothing_recorded_is_lost(bubblewrap: None, tmp_path: Path) -> None:
    """The collection lies on a small file system; the same command goes on when there is room."""
    tasks = write_tasks(tmp_path / "tasks.jsonl", *(f"t{i}" for i in range(6)))
    script = write_script(tmp_path / "s.md", *[f"echo {i}; head -c 9000 /dev/zero | tr '\\0' x" for i in range(12)])
    small = tmp_path / "small"
    small.mkdir()
    drive = Path(__file__).with_name("drive.py")
    options = ["--script", str(script), "--workers", "2", "--sandbox", "bubblewrap", "--target", "cpu"]
    inner = [sys.executable, str(drive), "collect", str(tasks), *options, "-o", str(small / "out")]
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    steps = f'mount -t tmpfs -o size=900k none {small} && "$@"; code=$?; cp -r {small}/out {tmp_path}/kept; exit $code'
    argv = [unshare, "--mount", "sh", "-c", steps, "sh", *inner]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "no further episode is started" in done.stdout and "disk is full" in done.stdout + done.stderr
    kept = tmp_path / "kept"
    before = {run.run_id: len(list(read_events(run.events))) for run in find_runs([kept])}
    assert before
    again = subprocess.run([*inner[:-1], str(kept)], capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
    assert summary(kept)["episodes"]["done"] == 6 and set(settled(kept).values()) == {1}


def test_a_judge_that_lacks_disk_uses_up_no_attempt(bubblewrap: None, tmp_path: Path) -> None:
    """The place for temporary files holds a sandbox, but not a copy of the submission."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a")
    script = write_script(tmp_path / "s.md", "head -c 2000000 /dev/zero | tr '\\0' '#' > model_new.py")
    out, small = tmp_path / "collection", tmp_path / "small"
    small.mkdir()
    drive = Path(__file__).with_name("drive.py")
    options = ["--script", str(script), "--workers", "1", "--sandbox", "bubblewrap", "--target", "cpu"]
    inner = [sys.executable, str(drive), "collect", str(tasks), *options, "-o", str(out)]
    steps = f'mount -t tmpfs -o size=1m none {small} && TMPDIR={small} exec "$@"'
    done = subprocess.run([unshare, "--mount", "sh", "-c", steps, "sh", *inner], capture_output=True, text=True)
    assert done.returncode == 3 and "no further episode is started" in done.stdout, done.stdout + done.stderr
    assert [line["error"] for line in lines(out / "attempts.jsonl")] == ["disk_full"]
    assert summary(out)["episodes"]["owed"] == 1
    again = subprocess.run(inner, capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
    assert summary(out)["episodes"]["done"] == 1 and set(settled(out).values()) == {1}
    assert len(list(find_runs([out]))) == 1


def test_a_run_that_a_full_disk_stopped_long_ago_does_not_stop_the_next_command(
    bubblewrap: None, collect: Collect, tmp_path: Path
) -> None:
    """The stop was the last line that fitted; today there is room."""
    tasks = write_tasks(tmp_path / "tasks.jsonl", "a", "b", "c")
    flags = {"backend.script": str(write_script(tmp_path / "s.md", "ls"))}
    out = tmp_path / "collection"
    assert collect(tasks, flags=flags) == 0
    run = next(run for run in find_runs([out]) if run.path.parts[-3].startswith("a"))
    events = [json.loads(line) for line in run.events.read_text().splitlines()]
    until = next(i for i, event in enumerate(events) if event["type"] == "stop")
    events[until] |= {"reason": "disk_full", "detail": "database or disk is full"}
    run.events.write_text("".join(json.dumps(event) + "\n" for event in events[: until + 1]))
    (run.path / "verdict.json").unlink()
    (out / "attempts.jsonl").unlink()
    for other in find_runs([out]):
        if other.path != run.path:
            shutil.rmtree(other.path)
    assert collect(tasks, workers=1, flags=flags) == 0
    assert summary(out)["episodes"]["done"] == 3 and set(settled(out).values()) == {1}
    assert [line["error"] for line in lines(out / "attempts.jsonl")].count("disk_full") == 1


def test_more_samples_than_anybody_can_want_are_a_slip(tmp_path: Path) -> None:
    argv = [sys.executable, str(Path(__file__).with_name("drive.py")), "collect", "t", "--samples", "99999999999"]
    done = subprocess.run([*argv, "-o", str(tmp_path / "c")], capture_output=True, text=True)
    assert done.returncode == 2 and "--samples" in done.stderr, done.stderr
