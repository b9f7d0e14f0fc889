"""Early feedback on a submission's text: `python -I scan.py --workspace DIR --target T --policy P`, one JSON object.

A finding says what the judge is likely to reject and why; no finding proves nothing. Nothing of the workspace is run.
"""

import argparse
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from building.sources import SourceError, read_sources
from scanning.native_source import scan_native
from scanning.python_source import Finding, scan_python

MAX_FINDINGS: Final = 40
MODEL_BYTES: Final = 1 << 20


def scan(workspace: Path, *, policy: str, target: str) -> list[Finding]:
    """At most MAX_FINDINGS findings {"code", "detail"} about model_new.py and kernels/."""
    findings = _scan_model(workspace / "model_new.py", policy=policy)
    try:
        sources = read_sources(workspace, target=target)
    except SourceError as error:
        return [*findings, {"code": error.code, "detail": error.detail}]
    for name, data in {**sources.sources, **sources.headers}.items():
        text = data.decode("utf-8", "replace")
        findings += scan_native(text, policy=policy, target=target, name=f"kernels/{name}")
    return findings[:MAX_FINDINGS]


def _scan_model(path: Path, *, policy: str) -> list[Finding]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return [{"code": "load.no_model_new", "detail": f"model_new.py cannot be read: {error.strerror}"}]
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return [{"code": "load.no_model_new", "detail": "model_new.py is not a regular file"}]
        data = file.read(MODEL_BYTES + 1)
    if len(data) > MODEL_BYTES:
        return [{"code": "load.too_large", "detail": f"model_new.py is larger than {MODEL_BYTES >> 20} MB"}]
    return scan_python(data.decode("utf-8", "replace"), policy=policy)


def main() -> int:
    parser = argparse.ArgumentParser(description="Scan a submission's text and print what the judge may object to.")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--policy", choices=("strict", "open"), default="strict")
    flags = parser.parse_args()
    findings = scan(flags.workspace, policy=flags.policy, target=flags.target)
    status = "findings" if findings else "clean"
    report: dict[str, Any] = {"schema_version": 1, "tool": "scan", "status": status, "reasons": findings}
    json.dump(report, sys.stdout)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
