"""Says whether a model.py can be a task: `python -I inspect_task.py --target cpu|cuda` with {"model_py": "…"} on stdin.

Runs the file in a child process with limits: load, build the model, make inputs, forward several times. Does not judge
whether a tolerance exists for it; the judge's own controls do that.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from referee import confine, signing
from taskrun import child

TIMEOUT_S: Final = 120.0


def inspect_task(model_py: str, *, target: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """A TaskReport as a dict: summary where the status is ok, else one task.* reason."""
    started = time.monotonic()
    outcome = child.run("inspect", model_py, target=target, timeout_s=timeout_s)
    reasons = [] if outcome.status == "ok" else [{"code": outcome.code, "detail": outcome.detail}]
    return _report(outcome.status, reasons, outcome.summary, time.monotonic() - started)


def _report(status: str, reasons: list[dict[str, str]], summary: dict[str, Any], seconds: float) -> dict[str, Any]:
    head = {"schema_version": 1, "tool": "inspect_task", "status": status}
    return head | {"reasons": reasons, "summary": summary, "seconds": round(seconds, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Report whether model.py (JSON on stdin) can be a task.")
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--timeout-s", type=float, default=TIMEOUT_S, help="limit for everything together")
    flags = parser.parse_args()
    confine.set_dumpable(False)  # the task runs below with the same uid, and must not find the key here
    stdout, key = signing.take_stdout(), b""
    try:
        text, key = child.asked_on_stdin(required=True)
        report = inspect_task(text or "", target=flags.target, timeout_s=flags.timeout_s)
    except child.StdinError as error:
        report = _report("error", [{"code": "task.stdin", "detail": str(error)}], {}, 0.0)
    signing.write(stdout, report, key=key)
    return 0


if __name__ == "__main__":
    sys.exit(main())
