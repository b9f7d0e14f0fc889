"""Times of a suite's references: `python -I baselines.py --target cpu|cuda --out ROWS.jsonl < PROBLEMS.jsonl`.

Rows on stdin need `task_id`, `sha256` and `code`. Problems are loaded and compiled side by side; while one of them is
timed, all others are stopped. What is known is in ROWS.jsonl at once, so that an interrupted call loses what was under
way. Covered and not covered: baselining/one.py.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))


def main() -> int:
    parser = argparse.ArgumentParser(description="Time references in eager mode and compiled; problems on stdin.")
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--precision", choices=("strict", "tf32", "bf16"), default="strict")
    parser.add_argument("--out", type=Path, required=True, help="rows are appended to this file")
    parser.add_argument("--lanes", type=int, default=0, help="problems prepared at once (default: half the processors)")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="for one problem, without what others take")
    parser.add_argument("--timing-s", type=float, default=0.5, help="aim for the timed calls of one problem")
    parser.add_argument("--budget-s", type=float, default=0.0, help="begin no problem after this time")
    parser.add_argument("--version", default="", help="goes into every row: which tools measured it")
    flags = parser.parse_args()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # the lanes are the parallel part
    from baselining import crew
    from referee import confine

    rows = [json.loads(line) for line in sys.stdin if line.strip()]
    import_all()
    confine.adopt_orphans()
    lanes = flags.lanes or max(1, len(os.sched_getaffinity(0)) // 2)
    with (
        tempfile.TemporaryDirectory(prefix="agent-baselines-", ignore_cleanup_errors=True) as scratch,
        flags.out.open("a", encoding="utf-8") as out,
    ):

        def tell(row: dict[str, Any]) -> None:
            out.write(json.dumps({**row, "tools": flags.version}) + "\n")
            out.flush()
            os.fsync(out.fileno())

        plan = crew.Plan(
            target=flags.target,
            precision=flags.precision,
            lanes=lanes,
            timeout_s=flags.timeout_s,
            timing_s=flags.timing_s,
            budget_s=flags.budget_s,
            scratch=Path(scratch),
        )
        crew.Crew(plan, rows, tell).run()
    return 0


def import_all() -> None:
    """What the problems' processes need, once. Nothing here may touch CUDA: a process with a context cannot fork."""
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx
    from baselining import one

    torch.set_grad_enabled(False)
    del one


if __name__ == "__main__":
    sys.exit(main())
