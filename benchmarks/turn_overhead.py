"""Measures what the harness itself costs per turn, and its memory, over many turns with large outputs.

usage: python benchmarks/turn_overhead.py [--kind bubblewrap|none|docker] [--turns N] [--output-bytes N]
The loop is the real one (graph, checkpoints, fsynced events, rendering) with a real sandbox; the backend answers at
once with the next command, which prints the given number of bytes. Own time of a turn = from one question to the next,
less the time inside the backend and inside the sandbox; CPU time likewise, which other programs disturb less. Prints
early, late and median turns, and the peak resident memory of this process, beside the targets; exit code 1 where one is
missed.
"""

import argparse
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.backends.base import Message, Reply, ToolCall, ToolSchema, Usage
from agent.config import Config, load_config
from agent.judging.sandboxes import sandbox_limits
from agent.judging.tool_runs import Rules
from agent.loop.control import Controls, SilentListener
from agent.loop.conversation import Conversation
from agent.loop.ledger import Ledger
from agent.loop.limits import Clock
from agent.loop.play import play
from agent.loop.session import Log, Session
from agent.loop.workbench import LOGS, Workbench
from agent.sandbox.base import ExecResult, Mount, Sandbox, SandboxSpec
from agent.sandbox.open import open_sandbox
from agent.tasks.task import Task, text_sha256
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import EventWriter

TARGET_MS = 20.0
TARGET_MB = 250.0
TASK = Task(path=Path("/x/model.py"), name="overhead", text="", sha256=text_sha256(""))


class Meter:
    """Wall and CPU seconds of this process less those inside the sandbox, at each question to the backend."""

    def __init__(self) -> None:
        self.sandbox_s = 0.0
        self.sandbox_cpu_s = 0.0
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def mark(self) -> None:
        self.wall.append(time.perf_counter() - self.sandbox_s)
        self.cpu.append(time.process_time() - self.sandbox_cpu_s)

    def own_ms(self) -> list[float]:
        """Own wall time of each turn but the last, in milliseconds."""
        return [1000 * (end - begin) for begin, end in zip(self.wall, self.wall[1:], strict=False)]

    def own_cpu_ms(self) -> list[float]:
        return [1000 * (end - begin) for begin, end in zip(self.cpu, self.cpu[1:], strict=False)]


class InstantBackend:
    """Answers at once: every turn another command with a large output."""

    name = "instant"

    def __init__(self, meter: Meter, output_bytes: int) -> None:
        self.meter = meter
        self.output_bytes = output_bytes

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        self.meter.mark()
        turn = len(self.meter.wall)
        command = f"echo {turn}; yes 'a line of output, one of many' | head -c {self.output_bytes}"
        arguments = f'{{"command": "{command}"}}'
        return Reply(
            text=f"Turn {turn}.",
            calls=(ToolCall(id=f"c{turn}", name="bash", arguments=arguments),),
            finish_reason="tool_calls",
            usage=Usage(prompt_tokens=1000, completion_tokens=50),
        )

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "instant"}

    def close(self) -> None:
        pass


class MeteredSandbox:
    """A sandbox whose time is not the harness' own."""

    def __init__(self, inner: Sandbox, meter: Meter) -> None:
        self.inner, self.meter = inner, meter
        self.kind, self.python = inner.kind, inner.python
        self.read, self.write = inner.read, inner.write
        self.close, self.describe = inner.close, inner.describe

    def exec(self, argv: Sequence[str], **options: Any) -> ExecResult:
        began, began_cpu = time.perf_counter(), time.thread_time()
        result = self.inner.exec(argv, **options)
        self.meter.sandbox_s += time.perf_counter() - began
        self.meter.sandbox_cpu_s += time.thread_time() - began_cpu
        return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=("bubblewrap", "none", "docker"), default="bubblewrap")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--output-bytes", type=int, default=1_000_000)
    options = parser.parse_args()
    settings = [f"sandbox.kind={options.kind}", "sandbox.i_understand=true", f"limits.turns={options.turns}"]
    config = load_config(settings=[*settings, "limits.time_s=0"])
    with tempfile.TemporaryDirectory() as scratch:
        meter, sizes = run(config, Path(scratch), options.output_bytes)
    return report(meter, sizes, options)


def run(config: Config, scratch: Path, output_bytes: int) -> tuple[Meter, dict[str, int]]:
    folder = RunFolder.create(scratch, TASK, config)
    meter = Meter()
    spec = SandboxSpec(
        workspace=folder.workspace, mounts=(Mount(folder.logs, LOGS),), limits=sandbox_limits(config.sandbox)
    )
    sandbox = open_sandbox(config.sandbox, spec)
    try:
        with EventWriter(folder.events) as writer:
            bench = Workbench(MeteredSandbox(sandbox, meter), TASK, Rules(target="cpu"), config.limits, folder.logs)
            session = Session(
                config=config,
                folder=folder,
                log=Log(writer, Ledger(), Conversation()),
                backend=InstantBackend(meter, output_bytes),
                bench=bench,
                listener=SilentListener(),
                operator=None,
                controls=Controls(),
                clock=Clock(),
            )
            stop, error = play(session, lambda: None)
            if error is not None:
                raise error
            print(f"stopped: {stop.reason.value if stop else 'left'} after {session.ledger.turns} turns")
    finally:
        sandbox.close()
    return meter, {name: (folder.path / name).stat().st_size for name in ("events.jsonl", "graph.sqlite")}


def report(meter: Meter, sizes: dict[str, int], options: argparse.Namespace) -> int:
    own_ms, own_cpu_ms = meter.own_ms(), meter.own_cpu_ms()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    early, late = own_ms[1:21], own_ms[-20:]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, sandbox {options.kind}")
    print(f"own time per turn, ms: turn 2: {own_ms[1]:.2f}, turn {len(own_ms)}: {own_ms[-1]:.2f}")
    print(f"  median of turns 2-21: {statistics.median(early):.2f}, of the last 20: {statistics.median(late):.2f}")
    print(f"  median of all: {statistics.median(own_ms):.2f} (target {TARGET_MS:g}), slowest: {max(own_ms):.2f}")
    cpu = (statistics.median(part) for part in (own_cpu_ms[1:21], own_cpu_ms[-20:], own_cpu_ms))
    print(
        "own CPU time per turn, ms: median of turns 2-21: {:.2f}, of the last 20: {:.2f}, of all: {:.2f}".format(*cpu)
    )
    print(f"peak memory of this process: {peak_mb:.0f} MB (target {TARGET_MB:g})")
    print(", ".join(f"{name}: {size / 1e6:.2f} MB" for name, size in sizes.items()))
    slow = max(statistics.median(early), statistics.median(late)) > TARGET_MS
    return 1 if slow or peak_mb > TARGET_MB else 0


if __name__ == "__main__":
    sys.exit(main())
