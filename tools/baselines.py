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
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

BARE: Final = "AGENT_BASELINES_BARE"


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
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking for GPUs then starts no driver, which no fork survives
    from baselining import crew
    from referee import confine, removal

    rows = [json.loads(line) for line in sys.stdin if line.strip()]
    import_all(bare=BARE in os.environ)
    if flags.target == "cuda" and BARE not in os.environ and not can_fork():
        again(rows)
    confine.adopt_orphans()
    lanes = flags.lanes or max(1, len(os.sched_getaffinity(0)) // 2)
    with (
        removal.scratch("agent-baselines-") as scratch,
        flags.out.open("a", encoding="utf-8") as out,
    ):
        if torn(flags.out):
            out.write("\n")

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


def import_all(*, bare: bool) -> None:
    """What the problems' processes need, once. Nothing here may touch CUDA: a process with a context cannot fork."""
    import torch

    if not bare:
        import torch._dynamo
        import torch._inductor.compile_fx
    from baselining import one

    torch.set_grad_enabled(False)
    del one


def torn(path: Path) -> bool:
    """Whether an earlier call was ended in the middle of a row."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
        return size > 0 and file.read(1) != b"\n"


def can_fork() -> bool:
    """Whether a child can use the GPU after these imports; some versions of torch.compile's parts start the driver."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import torch

            code = 0 if float(torch.ones(1, device="cuda").item()) == 1.0 else 1
        except Exception:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def again(rows: list[dict[str, Any]]) -> None:
    """This program once more with torch alone imported: every problem then imports the rest itself."""
    with tempfile.TemporaryFile() as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
        file.seek(0)
        os.dup2(file.fileno(), 0)
        os.environ[BARE] = "1"
        os.execv(sys.executable, [sys.executable, "-I", *sys.argv])


if __name__ == "__main__":
    sys.exit(main())
