"""The reports of verify.py, profiling.py and judge.py, and the one place where they are written: the real standard
output.
"""

import json
import sys
from typing import Any, Final

from referee import signing
from referee.examine import Findings
from referee.options import Options
from referee.samples import Times

FASTER: Final = 1.05
EVIDENCE_BYTES: Final = 1 << 20


def write(descriptor: int, report: dict[str, Any], *, key: bytes) -> None:
    size = len(json.dumps(report, allow_nan=False))
    if size > EVIDENCE_BYTES:
        report = {**report, "evidence": {"left_out": f"{size} bytes of evidence are over the limit"}}
    signing.write(descriptor, report, key=key)
    sys.stdout.flush()


def verify_report(options: Options, findings: Findings) -> dict[str, Any]:
    status = {"passed": "verified", "rejected": "rejected", "error": "error"}[findings.status]
    return {"schema_version": 1, "tool": "verify", "status": status, "target": options.target, **_common(findings)}


def profile_report(options: Options, findings: Findings) -> dict[str, Any]:
    status = {"passed": "profiled", "rejected": "rejected", "error": "error"}[findings.status]
    times = findings.times if status == "profiled" else None
    return {
        "schema_version": 1,
        "tool": "profile",
        "status": status,
        "target": options.target,
        **_common(findings),
        "speedup": _speedup(times),
        "median_us": _medians(times),
    }


def verdict(options: Options, findings: Findings) -> dict[str, Any]:
    told = {"passed": "accepted", "rejected": "rejected", "error": "error"}[findings.status]
    times = findings.times if told == "accepted" else None
    evidence = {**findings.evidence, "submission_sha256": findings.submission_sha256, "build": _short(findings.build)}
    evidence["seconds"] = findings.seconds
    return {
        "schema_version": 1,
        "verdict": told,
        "reasons": findings.reasons,
        "correct": findings.correct if told != "accepted" else True,
        "reward": reward(times, how=options.reward) if times is not None else (-1 if told == "rejected" else None),
        "speedup": _speedup(times),
        "median_us": _medians(times),
        "target": options.target,
        "policy": options.policy,
        "precision": options.precision,
        "device": findings.device,
        "evidence": evidence,
    }


def reward(times: Times, *, how: str) -> int:
    """Eq. 1 of the paper; `interval` asks the lower bound, `paper` the median, to be more than 5 % faster."""
    values = {}
    for baseline in ("eager", "compile"):
        found = times.interval(baseline)
        values[baseline] = found.ratio if how == "paper" else found.low
    if values["eager"] > FASTER and values["compile"] > FASTER:
        return 3
    return 2 if values["eager"] > FASTER else 1


def _common(findings: Findings) -> dict[str, Any]:
    return {
        "reasons": findings.reasons,
        "submission_sha256": findings.submission_sha256,
        "build": findings.build,
        "evidence": findings.evidence,
        "seconds": findings.seconds,
    }


def _short(build: dict[str, Any] | None) -> dict[str, Any] | None:
    if build is None:
        return None
    return {key: build[key] for key in ("status", "sha256", "seconds", "sources", "log_tail") if key in build}


def _speedup(times: Times | None) -> dict[str, Any] | None:
    return None if times is None else {name: times.interval(name).report() for name in ("eager", "compile")}


def _medians(times: Times | None) -> dict[str, float] | None:
    if times is None:
        return None
    return {
        "candidate": round(times.median_us("submission"), 3),
        "eager": round(times.median_us("eager"), 3),
        "compile": round(times.median_us("compile"), 3),
    }
