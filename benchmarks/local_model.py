"""Ten small tasks with a local GGUF model, whole episodes: does each end well, and how many kernels are faster.

    python benchmarks/local_model.py PATH.gguf [--tasks N] [--turns N] [--context N] [--set A.B=C] [-o RUNS]

Printed whatever it is. An episode is whole when it ended for a reason that is no infrastructure trouble, every call in
its log has its observation, its log reads back, and what there is to judge has a verdict. Exit code 1 where one is not.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.backends.registry import make_backend
from agent.config import Config, load_config
from agent.errors import AgentError
from agent.loop.control import SilentListener
from agent.loop.episode import EpisodeResult, run_episode
from agent.tasks.task import Task, load_task
from agent.trajectory.events import ObservationEvent, ReplyEvent, RunEnd
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events

HEAD: Final = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
INPUTS: Final = "\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return [{init}]\n"
PLAIN: Final = "    def forward(self, {names}):\n        return {value}\n"
INIT: Final = "    def __init__(self, width):\n        super().__init__()\n"
WEIGHTED: Final = INIT + "        self.weight = nn.Parameter(torch.rand(width))\n\n"
X: Final = "torch.randn(2048, 1024)"
# name -> (names of the inputs, what forward returns, whether there is a weight)
TASKS: Final[dict[str, tuple[str, str, bool]]] = {
    "relu": ("x", "torch.relu(x)", False),
    "add-relu": ("x, y", "torch.relu(x + y)", False),
    "scale-shift": ("x", "x * 2.0 + 1.0", False),
    "square-sum": ("x, y", "x * x + y * y", False),
    "leaky": ("x", "F.leaky_relu(x, 0.1)", False),
    "clamp-sub": ("x, y", "torch.clamp(x - y, -1.0, 1.0)", False),
    "weight-scale": ("x", "x * self.weight", True),
    "row-sum": ("x", "x.sum(dim=1)", False),
    "row-max": ("x", "x.max(dim=1).values", False),
    "hard-swish": ("x", "x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0", False),
}


def text_of(name: str) -> str:
    names, value, weighted = TASKS[name]
    inputs = ", ".join([X] * (names.count(",") + 1))
    body = (WEIGHTED if weighted else "") + PLAIN.format(names=names, value=value)
    return HEAD + body + INPUTS.format(inputs=inputs, init="1024" if weighted else "")


@dataclass(frozen=True)
class Row:
    """One episode; `problem` is empty where it was whole."""

    name: str
    result: EpisodeResult
    problem: str
    seconds: float
    condensed: int


def problem_of(result: EpisodeResult) -> tuple[str, int]:
    """What keeps the episode from being whole, and how many turns were condensed at most."""
    events = list(read_events(result.run_dir / "events.jsonl"))
    replies = [event for event in events if isinstance(event, ReplyEvent)]
    calls = [call.id for event in replies for call in event.reply.calls]
    observed = [event.call_id for event in events if isinstance(event, ObservationEvent)]
    condensed = max((event.condensed_turns for event in replies), default=0)
    if result.reason.infrastructure:
        return f"{result.reason}: {result.detail}", condensed
    if calls != observed:
        return "a call without its observation", condensed
    if not isinstance(events[-1], RunEnd) or result.judge_errors:
        return "no verdict: " + "; ".join(result.judge_errors), condensed
    return "", condensed


def play(config: Config, name: str, folder: Path) -> Row:
    (folder / "tasks" / name).mkdir(parents=True, exist_ok=True)
    path = folder / "tasks" / name / "model.py"
    path.write_text(text_of(name))
    task: Task = load_task(path)
    began = time.monotonic()
    backend = make_backend(config.backend, task_sha256=task.sha256)
    try:
        run = RunFolder.create(folder, task, config)
        result = run_episode(config, task, run, backend=backend, listener=SilentListener())
    finally:
        backend.close()
    problem, condensed = problem_of(result)
    return Row(name, result, problem, time.monotonic() - began, condensed)


def show(row: Row) -> None:
    result = row.result
    verdict = next((v.verdict for v in (result.best, result.final) if v is not None), "nothing to judge")
    whole = row.problem or "whole"
    sys.stdout.write(
        f"{row.name:<14} {result.turns:>3} turns {row.condensed:>3} condensed {row.seconds:>6.0f} s  "
        f"{result.reason.value:<16} reward {result.reward}  {verdict}  {whole}\n"
    )
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--tasks", type=int, default=len(TASKS))
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--reply", type=int, default=700, help="most tokens of a reply")
    parser.add_argument("--config", type=Path, action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    flags = {
        "backend.name": "local",
        "backend.model": str(options.model),
        "backend.context_tokens": options.context,
        "backend.max_output_tokens": options.reply,
        "limits.turns": options.turns,
        "judge.target": "cpu",
    }
    try:
        config = load_config(files=options.config, settings=options.set, flags=flags)
        folder = options.output or Path(tempfile.mkdtemp(prefix="local-model-"))
        rows = []
        for name in list(TASKS)[: options.tasks]:
            rows.append(play(config, name, folder))
            show(rows[-1])
    except AgentError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    whole = sum(not row.problem for row in rows)
    rewards = Counter(row.result.reward for row in rows)
    correct = sum(count for reward, count in rewards.items() if reward is not None and reward >= 1)
    median_s = statistics.median(row.seconds for row in rows)
    sys.stdout.write(
        f"{whole} of {len(rows)} episodes whole; {correct} correct kernels, {rewards[3]} faster than eager and "
        f"torch.compile; median {median_s:.0f} s; runs in {folder}\n"
    )
    return 0 if whole == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
