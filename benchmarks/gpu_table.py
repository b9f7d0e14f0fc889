"""The short table of gpu_machine.sh's results: `python benchmarks/gpu_table.py FOLDER`. Prints Markdown.

Covers what the steps left in the folder. Does not measure anything; a row that is missing was not measured.
"""

import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONG_US = 100.0
Row = tuple[str, str, str]


def main() -> int:
    work = Path(sys.argv[1])
    print(f"# {machine()}\n")
    rows = [
        *steps(work),
        *doctor(work),
        *edits(work),
        *published(work),
        *inspected(work),
        *faults(work),
        *itself(work),
        *last_lines(work / "corpus.log", "corpus", 3),
        *last_lines(work / "judged.log", "tasks with their own model", 2),
        *baselines(work),
    ]
    print("| what | measured | aim |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print("\n| run | verdict | reward | candidate us | kernels us | clock over kernels | eager | compiled | memcheck |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for cells in verdicts(work):
        print(f"| {' | '.join(cells)} |")
    for name in ("bench/summary.md", "builtin.log"):
        if (path := work / name).is_file():
            print(f"\n{path.read_text(errors='replace')[-6000:]}")
    return 0


def machine() -> str:
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout.strip().replace("\n", "; ")
    except (OSError, subprocess.SubprocessError):
        gpu = ""
    return f"{time.strftime('%Y-%m-%d')}, {gpu or 'no GPU'}"


def steps(work: Path) -> Iterator[Row]:
    path = work / "steps.txt"
    for line in path.read_text().splitlines() if path.is_file() else ():
        name, _, rest = line.partition(" ")
        yield f"step {name}", " ".join(rest.split()), ""


def doctor(work: Path) -> Iterator[Row]:
    path = work / "doctor.log"
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        if "agent optimize" in line or "GPU access" in line or re.match(r"\s+[✗!] ", line):
            yield "doctor", " ".join(line.split())[:160], "45 s" if "agent optimize" in line else ""


def edits(work: Path) -> Iterator[Row]:
    aims = {"edit to verdict": "5 s", "build from the warmed cache": "12 s", "verify": "1.5 s"}
    path = work / "edit.log"
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        what, colon, figure = line.partition(": ")
        if colon:
            yield what, figure, next((aim for words, aim in aims.items() if what.startswith(words)), "")


def published(work: Path) -> Iterator[Row]:
    path = work / "published.log"
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        what, colon, figure = line.partition(": ")
        if colon and not what.startswith(" "):
            yield what, figure, ""


def inspected(work: Path) -> Iterator[Row]:
    """inspect_kernels.py and sanitize.py on an example; the last check is of a planted bad access."""
    path = work / "inspect.log"
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    for report in (json.loads(line) for line in lines if line.startswith('{"schema_version"')):
        what = report["tool"]
        reasons = "; ".join(f"{one['code']}: {one['detail'][:100]}" for one in report["reasons"])
        if what == "inspect_kernels":
            left = (report.get("roofline") or {}).get("left")
            counted = len(report.get("counters") or ())
            told = f"{report['status']} by {', '.join(report.get('sources', ()))}; {left} x left; {counted} rows of ncu"
            yield what, f"{told} {'; '.join(report.get('missing', ()))[:200]} {reasons}".replace("|", "/"), ""
        for check in report.get("checks", ()):
            told = f"{check['status']} ({check['detail'][:120]}) {check.get('seconds', 0):.0f} s"
            yield f"{what} {check['check']}", f"{told} {reasons}".replace("|", "/"), ""
        if what == "sanitize" and not report.get("checks"):
            yield what, f"{report['status']} {reasons}".replace("|", "/"), ""


def faults(work: Path) -> Iterator[Row]:
    path = work / "faults.log"
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        mark, _, rest = line.partition(" ")
        if mark in ("ok", "BAD"):
            yield "fault", f"{mark}: {' '.join(rest.split())[:180]}".replace("|", "/"), ""


def itself(work: Path) -> Iterator[Row]:
    path = work / "figures.json"
    log = work / "figures.log"
    if path.is_file():
        runs = json.loads(path.read_text())
        off = [abs(run["ratio"] - 1) for run in runs]
        within = sum(one <= 0.01 for one in off)
        yield "a kernel against itself", f"{within} of {len(off)} within 1 %, furthest {max(off):.2%}", "within 1 %"
        yield "one judgement", f"median {statistics.median(run['seconds'] for run in runs):.1f} s", ""
    elif log.is_file():  # it was stopped before its end
        found = [float(match[1]) for match in re.finditer(r"^ *\d+ +([\d.]+) \(", log.read_text(), re.MULTILINE)]
        if found:
            within = sum(abs(one - 1) <= 0.01 for one in found)
            furthest = max(abs(one - 1) for one in found)
            yield (
                "a kernel against itself",
                f"{within} of {len(found)} within 1 %, furthest {furthest:.2%}",
                "within 1 %",
            )


def last_lines(log: Path, what: str, count: int) -> Iterator[Row]:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    for line in lines[-count:]:
        yield what, " ".join(line.split())[:200].replace("|", "/"), ""


def baselines(work: Path) -> Iterator[Row]:
    path = work / "kernelbench" / "baselines.json"
    if not path.is_file():
        return
    for one in json.loads(path.read_text())["levels"]:
        ratio = one["eager_over_compile_geomean"]
        shown = f", eager over compiled {ratio:.2f} (geometric mean)" if ratio else ""
        yield (
            f"KernelBench {one['level']}",
            f"{one['measured']} of {one['tasks']} measured, {one['failed']} failed{shown}",
            "",
        )


def verdicts(work: Path) -> Iterator[list[str]]:
    """Of every recorded run: what the referee's clock says of a call against the profiler's time in kernels."""
    for path in sorted((work / "runs").glob("*/*/verdict.json")):
        data = json.loads(path.read_text())
        verdict = next((one for one in found_verdicts(data)), None)
        if verdict is not None:
            yield [path.parent.parent.name, *described(verdict)]


def found_verdicts(data: Any) -> Iterator[dict[str, Any]]:
    """The first that has times, however the file nests them."""
    if isinstance(data, dict):
        if "verdict" in data and "evidence" in data:
            yield data
            return
        for value in data.values():
            yield from found_verdicts(value)
    elif isinstance(data, list):
        for value in data:
            yield from found_verdicts(value)


def described(verdict: dict[str, Any]) -> list[str]:
    median = (verdict.get("median_us") or {}).get("candidate")
    kernels = sum(entry[2] for entry in verdict["evidence"].get("kernels") or ())
    over = f"{median / kernels - 1:+.1%}" if median and kernels else "-"
    if median and kernels and kernels < LONG_US:
        over += f" (below {LONG_US:.0f} us)"
    speedup = verdict.get("speedup") or {}
    ratios = [f"{one['ratio']:.2f} ({one['low']:.2f}-{one['high']:.2f})" for one in speedup.values()] or ["-", "-"]
    memory = verdict["evidence"].get("memcheck") or {}
    checked = f"{memory.get('status', '-')} {memory.get('seconds', '')}".strip()
    said = verdict["verdict"] + "".join(f" {reason['code']}" for reason in verdict.get("reasons", ())[:1])
    return [said, str(verdict["reward"]), f"{median:.1f}" if median else "-", f"{kernels:.1f}", over, *ratios, checked]


if __name__ == "__main__":
    sys.exit(main())
