"""Verifies, times or judges a submission that is not there yet: `python -I standby.py --workspace DIR --target cpu
--signals DIR --await submission < {"model_py": …}`.

Everything that the submission has no part in is done before it comes. The file `submission` in the folder of signals
says which of the three is wanted; the report is that of verify.py, profiling.py or judge.py, and the work is the same:
a judgement builds everything anew in a folder of its own.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from referee import launch, options, session, signing


def main() -> int:
    launch.harden_referee()
    asked = options.read_options("standby", budget_s=options.PROFILE_S)
    # The workers' template imports torch while this process does the same below.
    sitting = session.Session(asked, fresh_build=False)
    from referee import examine, report

    stdout = signing.take_stdout()
    try:
        findings = examine.examine(asked, sitting, timed=True, budget_s=asked.budget_s)
        told = {"judge": report.verdict, "verify": report.verify_report}.get(findings.wanted, report.profile_report)
        report.write(stdout, told(asked, findings), key=asked.key)
    finally:
        sitting.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
