"""Prints a task's forward as a list of operators: `python -I trace_task.py model.py --target cpu|cuda`.

Runs the file in a child process with limits, like inspect_task.py. What cannot be traced is a report too (status
untraceable, with the reason); nothing of it is a judgement.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from taskrun import child

TIMEOUT_S: Final = 120.0


def trace_task(model_py: str, *, target: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """status traced with leaves, nodes, outputs and nest, or untraceable, invalid or error with one reason."""
    started = time.monotonic()
    outcome = child.run("trace", model_py, target=target, timeout_s=timeout_s)
    untraceable = outcome.code == "task.untraceable"
    status = "traced" if outcome.status == "ok" else "untraceable" if untraceable else outcome.status
    reasons = [] if outcome.status == "ok" else [{"code": outcome.code, "detail": outcome.detail}]
    head = {"schema_version": 1, "tool": "trace_task", "status": status, "reasons": reasons}
    return head | {"seconds": round(time.monotonic() - started, 3), "graph": outcome.summary or None}


def main() -> int:
    parser = argparse.ArgumentParser(description="List the operators of model.py's forward as one JSON object.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--timeout-s", type=float, default=TIMEOUT_S, help="limit for everything together")
    flags = parser.parse_args()
    try:
        text = flags.model.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"{flags.model}: {error}")
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    json.dump(trace_task(text, target=flags.target, timeout_s=flags.timeout_s), stdout, separators=(",", ":"))
    stdout.write("\n")
    stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
