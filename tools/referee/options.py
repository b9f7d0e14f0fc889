"""Flags of verify.py, profiling.py and judge.py, and the task's text from standard input."""

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from referee import signing

TEXT_LIMIT = 8 << 20
PROFILE_S = 12.0
JUDGE_S = 14.0  # with what a judgement takes besides, 20 s more than its timed batches on two cores


@dataclass(frozen=True)
class Options:
    """What to judge and how. `text` is the pristine model.py; it is never written to a file."""

    workspace: Path
    target: str
    policy: str
    precision: str
    cache: Path | None
    budget_s: float
    reward: str
    baseline: str
    text: str
    signals: Path | None = None  # files in it say what has come; see waiting.py
    awaited: tuple[str, ...] = ()  # of device and submission, those that are not there yet
    key: bytes = field(default=b"", repr=False)  # signs the report

    @property
    def task_sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_options(tool: str, *, budget_s: float) -> Options:
    """From argv and standard input; exits with code 2 where they make no sense."""
    parser = argparse.ArgumentParser(
        prog=f"{tool}.py", description=f"{tool}: reads {{'model_py': TEXT}} from standard input."
    )
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--policy", choices=("strict", "open"), default="strict")
    parser.add_argument("--precision", choices=("strict", "tf32", "bf16"), default="strict")
    parser.add_argument("--cache", type=Path, help="folder filled by warm_cache.py")
    parser.add_argument("--budget-s", type=float, default=budget_s, help="aim for the timed rounds, in seconds")
    parser.add_argument("--reward", choices=("interval", "paper"), default="interval")
    parser.add_argument(
        "--baseline", choices=("default", "max-autotune"), default="default", help="mode of torch.compile"
    )
    parser.add_argument("--signals", type=Path, help="folder in which files say that what is awaited has come")
    parser.add_argument(
        "--await",
        dest="awaited",
        action="append",
        choices=("device", "submission"),
        default=[],
        help="do what can be done without it, then wait for a file of this name in --signals; may be repeated",
    )
    flags = parser.parse_args()
    if flags.awaited and flags.signals is None:
        parser.error("--await needs --signals")
    try:
        asked = json.loads(sys.stdin.buffer.read(TEXT_LIMIT))
        text, key = asked["model_py"], signing.key_in(asked)
        if not isinstance(text, str):
            raise TypeError("model_py is no string")
    except (ValueError, KeyError, TypeError) as error:
        parser.error(f"standard input must be JSON with the key model_py: {error}")
    return Options(
        workspace=flags.workspace,
        target=flags.target,
        policy=flags.policy,
        precision=flags.precision,
        cache=flags.cache,
        budget_s=flags.budget_s,
        reward=flags.reward,
        baseline=flags.baseline,
        text=text,
        signals=flags.signals,
        awaited=tuple(flags.awaited),
        key=key,
    )
