"""tools/judge.py whose timed stage runs several times: `python -I measured_again.py COUNT FILE --workspace …`.

A judgement's start (imports, contexts, compilers) takes longer than its clock; on a borrowed GPU this leaves time for
more measurements. Every one draws seeds of its own, warms up and finds its batch size anew; workers, addresses of
weights and compiled code stay, so that several processes say more than several measurements. The timing reports go to
FILE, the verdict on the last one to standard output.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from referee import launch, options, session, signing


def main() -> int:
    count, file = int(sys.argv[1]), Path(sys.argv[2])
    del sys.argv[1:3]
    launch.harden_referee()
    asked = options.read_options("judge", budget_s=options.JUDGE_S)
    sitting = session.Session(asked, fresh_build=True)
    from referee import examine, report, samples, timing
    from referee.seeds import Seeds

    measured_once: Callable[..., samples.Times] = timing.measure
    rows: list[dict[str, Any]] = []

    def measured(trial: Any, *arguments: Any, **named: Any) -> samples.Times:
        for _ in range(count):
            trial.seeds = Seeds()
            times = measured_once(trial, *arguments, **named)
            rows.append({"eager": times.interval("eager").report(), **samples.report(times)})
        return times

    timing.measure = measured
    stdout = signing.take_stdout()
    try:
        findings = examine.examine(asked, sitting, timed=True, budget_s=asked.budget_s)
        file.write_text(json.dumps(rows))
        report.write(stdout, report.verdict(asked, findings), key=asked.key)
    finally:
        sitting.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
