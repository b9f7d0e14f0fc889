"""Verifies a submission and times it against eager and torch.compile: `python -I profiling.py --workspace DIR
--target cpu < {"model_py": …}`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from referee import launch, options, session, signing


def main() -> int:
    launch.harden_referee()
    asked = options.read_options("profiling", budget_s=options.PROFILE_S)
    # The workers' template imports torch while this process does the same below.
    sitting = session.Session(asked, fresh_build=False)
    from referee import examine, report

    stdout = signing.take_stdout()
    try:
        findings = examine.examine(asked, sitting, timed=True, budget_s=asked.budget_s)
        report.write(stdout, report.profile_report(asked, findings), key=asked.key)
    finally:
        sitting.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
