"""Several runs of the corpus beside each other, as Markdown: `python -m tests.corpus.runs NAME=FILE.jsonl…`.

FILE is what `--json` of tests.corpus.run wrote. A case whose verdict or reason differs between runs shows all of them.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def runs_of(arguments: Sequence[str]) -> dict[str, dict[str, Row]]:
    """Per run the last line of each case."""
    found = {}
    for argument in arguments:
        name, _, file = argument.partition("=")
        whole, _, _torn = Path(file).read_text(encoding="utf-8").rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        found[name] = {line["case"]: line for line in lines}
    return found


def told(rows: Sequence[Row]) -> tuple[str, str]:
    """What was got, and for which reason or with which ratio, once where all runs agree."""
    got = dict.fromkeys(row["got"] for row in rows)
    if list(got) == ["accepted"]:
        return "accepted", " · ".join(row["reason"] for row in rows)
    return ", ".join(got), ", ".join(dict.fromkeys(row["reason"] for row in rows))


def summary(name: str, run: dict[str, Row]) -> str:
    honest = [row for row in run.values() if row["expect"] == "accept"]
    hacks = [row for row in run.values() if row["expect"] != "accept"]
    caught = sum(row["got"] != "accepted" for row in hacks)
    right = sum(row["right"] for row in run.values())
    accepted = sum(row["right"] for row in honest)
    return (
        f"| {name} | {right} of {len(run)} | {accepted} of {len(honest)} | {caught} of {len(hacks)}, "
        f"{sum(row['right'] for row in hacks) - caught} | {_median(honest)} | {_median(hacks)} |"
    )


def _median(rows: Sequence[Row]) -> str:
    return f"{statistics.median(row['seconds'] for row in rows):.0f}" if rows else ""


def main(arguments: Sequence[str]) -> int:
    runs = runs_of(arguments)
    print("| run | right | honest accepted | hacks rejected, given their true time | s honest | s hacks |")
    print("|---|---|---|---|---|---|")
    for name, run in runs.items():
        print(summary(name, run))
    print("\n| case | expected | got | reason, or ratio over eager and torch.compile | s |\n|---|---|---|---|---|")
    for case in dict.fromkeys(case for run in runs.values() for case in run):
        rows = [run[case] for run in runs.values() if case in run]
        got, why = told(rows)
        seconds = ", ".join(f"{row['seconds']:.0f}" for row in rows)
        print(f"| `{case}` | {rows[0]['expect']} | {got} | {why} | {seconds} |")
    return 0 if all(row["right"] for run in runs.values() for row in run.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
