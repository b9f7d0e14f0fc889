"""Time and size of `agent view` for a collection of 1,000 runs (target: 10 s on two cores), and of opening its pages.

Opened in a headless Chromium: until the overview is drawn (data there, plots there), until a click has sorted the table
and a word typed has filtered it, and until the largest run page is loaded; medians of --opens times.
The runs are made from the recorded runs of examples/, each with texts of its own (no two are equal, so that nothing is
highlighted only once), other times, and up to 8 more turns that edit, compile, verify and profile again.
`python benchmarks/view_scale.py [--runs 1000] [--workers N] [--opens 5] [--keep FOLDER]`
"""

import argparse
import json
import os
import platform
import random
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "view"))

from browser import Browser

from agent.view.site import write_view

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET_S: Final = 10.0
OPEN_TARGET_S: Final = 5.0
SAMPLES: Final = 4
FILTER: Final = "softmax"
# What is timed, what is done, and what is true in the page when it is over.
STEPS: Final = (
    (f"overview open and drawn (target {OPEN_TARGET_S:g} s)", "overview", "document.body.dataset.drawn === 'yes'"),
    ("sorted", 'th[data-key="eager"] button', "document.querySelector('th[data-key=eager]').ariaSort === 'descending'"),
    ("filtered", FILTER, "document.getElementById('count').textContent.includes(' of ')"),
    ("largest run page open", "run page", "document.readyState === 'complete'"),
)
MODELS: Final = ("model-a-70b", "model-b-32b")
Json = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--opens", type=int, default=5, help="how often each page is opened; 0: no browser")
    parser.add_argument("--keep", type=Path, help="make the collection here and leave it")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="view-scale-") as scratch:
        collection = options.keep or Path(scratch) / "collection"
        make_collection(collection, runs=options.runs)
        return measure(collection, Path(scratch), workers=options.workers, opens=options.opens)


def measure(collection: Path, scratch: Path, *, workers: int | None, opens: int) -> int:
    logs = list(collection.rglob("events.jsonl"))
    size = sum(path.stat().st_size for path in logs)
    began, cpu = time.perf_counter(), _cpu_s()
    written = write_view([collection], workers=workers)
    wall_s, cpu_s = time.perf_counter() - began, _cpu_s() - cpu
    if "is damaged" in written.page.read_text(encoding="utf-8"):
        raise SystemExit("the runs that were made are damaged: this measures nothing")
    pages = [path.stat().st_size for path in collection.rglob("view.html") if path != written.page]
    overview, total, largest = written.page.stat().st_size / 1e6, sum(pages) / 1e6, max(pages) / 1e3
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{written.runs} runs, events.jsonl {size / 1e6:.1f} MB ({size / len(logs) / 1e3:.0f} kB each)")
    print(f"wall {wall_s:.2f} s (target {TARGET_S:g} for 1000), CPU {cpu_s:.2f} s")
    print(f"overview {overview:.1f} MB, run pages {total:.1f} MB, largest {largest:.0f} kB")
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"peak memory of a process {peak / 1024:.0f} MB")
    good = wall_s <= TARGET_S * max(1.0, written.runs / 1000)
    if opens:
        largest_page = max(
            (p for p in collection.rglob("view.html") if p != written.page), key=lambda p: p.stat().st_size
        )
        good &= browse(scratch / "profile", written.page, largest_page, opens=opens)
    return 0 if good else 1


def browse(profile: Path, overview: Path, largest: Path, *, opens: int) -> bool:
    """Seconds as a person waits them, the driver's own milliseconds included."""
    times: dict[str, list[float]] = {}
    browser = Browser(profile)
    try:
        for _ in range(opens):
            for what, act, done in STEPS:
                page = {"overview": overview, "run page": largest}.get(act)
                began = time.perf_counter()
                browser.open(page) if page else browser.type("#f-q", act) if act == FILTER else browser.click(act)
                browser.wait_for(done)
                times.setdefault(what, []).append(time.perf_counter() - began)
            assert browser.complaints() == []
    finally:
        browser.close()
    for what, seconds in times.items():
        print(f"{what}: median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s")
    return statistics.median(times[STEPS[0][0]]) <= OPEN_TARGET_S


def make_collection(folder: Path, *, runs: int, seed: int = 0) -> None:
    """Runs in the layout of `agent collect`, with collection.json."""
    chance = random.Random(seed)
    sources = sorted(ROOT.glob("examples/*/run"))
    tasks = []
    for number in range(0, runs, SAMPLES):
        source = sources[(number // SAMPLES) % len(sources)]
        name = f"{source.parent.name}-{number // SAMPLES:03d}"
        tasks.append({"id": name, "sha256": f"{number:064x}", "folder": f"tasks/{name}-{number:08x}", "source": "made"})
        for sample in range(min(SAMPLES, runs - number)):
            place = folder / "tasks" / f"{name}-{number:08x}" / str(sample)
            _make_run(source, place / f"2026-11-30T1000-{name}-{number + sample:08x}", name, number + sample, chance)
    record = {"schema_version": 1, "agent_version": "0.1.0", "settings": {}, "samples": SAMPLES, "tasks": tasks}
    (folder / "collection.json").write_text(json.dumps(record), encoding="utf-8")


def _make_run(source: Path, run: Path, name: str, number: int, chance: random.Random) -> None:
    run.mkdir(parents=True)
    shutil.copy(source / "config.json", run)
    task = json.loads((source / "task.json").read_bytes()) | {"id": name}
    (run / "task.json").write_text(json.dumps(task), encoding="utf-8")
    (run / "best" / "kernels").mkdir(parents=True)
    for path in [source / "best" / "model_new.py", *(source / "best" / "kernels").iterdir()]:
        own = _own(path.read_text(encoding="utf-8"), number)
        (run / path.relative_to(source)).write_text(own, encoding="utf-8")
    events = [json.loads(line) for line in (source / "events.jsonl").open("rb")]
    wanted, pace = chance.choice([-1, -1, 1, 2, 2, 3, 3, 3]), chance.lognormvariate(0.3, 0.5)
    longer = list(_longer(events, more=chance.randrange(9), pace=pace, chance=chance))
    with (run / "events.jsonl").open("w", encoding="utf-8") as file:
        for seq, event in enumerate(longer):
            file.write(_own(json.dumps(event | {"seq": seq}), number, escaped=True) + "\n")
    verdict = json.loads((source / "verdict.json").read_bytes())
    if number % 50 == 49:
        return  # a run that has not ended
    _judge(verdict, wanted, pace, chance)
    (run / "verdict.json").write_text(json.dumps(verdict), encoding="utf-8")


def _longer(events: list[Json], *, more: int, pace: float, chance: random.Random) -> Iterator[Json]:
    """The last turn that profiled is played `more` times again, each time a little faster."""
    profiled = max(e["turn"] for e in events if e["type"] == "observation" and e["name"] == "profile")
    block = [e for e in events if e.get("turn") == profiled]
    end = max(i for i, e in enumerate(events) if e.get("turn") == profiled) + 1
    for event in events[:end]:
        yield _spent(event, chance)
    for step in range(1, more + 1):
        for event in block:
            copy = json.loads(json.dumps(event)) | {"turn": profiled + step}
            _scale(copy.get("report"), pace * (1 + 0.1 * step) * chance.lognormvariate(0, 0.1))
            yield _spent(copy, chance)
    for event in events[end:]:
        yield _spent(event | {"turn": event["turn"] + more} if "turn" in event else event, chance)


def _spent(event: Json, chance: random.Random) -> Json:
    if event["type"] == "run_start":
        event["backend"] = {"kind": "openai", "model": chance.choice(MODELS)}
    if event["type"] == "reply":
        prompt, completion = chance.randrange(3_000, 40_000), chance.randrange(200, 3_000)
        cost = (prompt * 0.5 + completion * 2.0) / 1e6
        event["reply"]["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion, "cost_usd": cost}
    return event


def _scale(report: Json | None, factor: float) -> None:
    for speedup in ((report or {}).get("speedup") or {}).values():
        width = 0.04 + 0.1 / speedup["ratio"]
        ratio = speedup["ratio"] * factor
        speedup.update(ratio=ratio, low=ratio * (1 - width), high=ratio * (1 + width))
        speedup["call"] = "faster" if speedup["low"] > 1 else "slower" if speedup["high"] < 1 else "inconclusive"


def _judge(record: Json, reward: int, pace: float, chance: random.Random) -> None:
    counted = record[record["counts"]]
    if reward == -1:
        reason = {"code": "numeric.mismatch", "detail": "output 0 differs by 0.3 at [1, 2]"}
        counted.update(verdict="rejected", reasons=[reason], correct=False, reward=-1, speedup=None, median_us=None)
    else:
        _scale(counted, pace * chance.lognormvariate(0, 0.2))
        counted["reward"] = reward
    record["reward"] = reward


def _own(text: str, number: int, *, escaped: bool = False) -> str:
    """The text with a remark of this run's own before every include and import of torch."""
    end = "\\n" if escaped else "\n"
    # Functions, not templates: in those, \\n would be a line break.
    text = re.sub("#include", lambda found: f"// variant {number}{end}{found[0]}", text)
    return re.sub(r"import torch(?=\\n|\n)", lambda found: f"# variant {number}{end}{found[0]}", text)


def _cpu_s() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    sys.exit(main())
