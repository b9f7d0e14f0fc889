"""A program for self_test.py: sealed like a submission's worker on a CPU, it tries to open what belongs to the
processes around the tools. Prints {"filtered": …, "landlock": …, "opened": [paths]}.

Covers: memory, standard output and oom_score_adj of its ancestors, without its parent, which is self_test.py itself
(the judge is not dumpable, self_test.py is). Not covered: system calls; tests/tools/test_confine.py tries those.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from referee import confine

TRIED: Final = (("mem", os.O_RDWR), ("fd/1", os.O_WRONLY), ("oom_score_adj", os.O_WRONLY))


def ancestors() -> list[int]:
    """From the parent's parent up to the first process of this namespace."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 0:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found[1:]


def opened(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def main() -> int:
    around = ancestors()
    confine.set_dumpable(False)
    confine.drop_capabilities()
    filtered = confine.filter_calls(proc_read_only=True)
    found = [f"/proc/{pid}/{name}" for pid in around for name, flags in TRIED if opened(f"/proc/{pid}/{name}", flags)]
    sys.stdout.write(json.dumps({"filtered": filtered, "landlock": confine.landlock_version(), "opened": found}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
