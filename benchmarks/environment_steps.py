"""Measures what KernelEnv itself costs per step while many episodes run in one process, and its memory.

usage: python benchmarks/environment_steps.py [--episodes N] [--steps N] [--kind bubblewrap|none|docker]
Each episode has a thread and a real sandbox; the policy answers at once with `echo` (bash only). Own CPU time of a step
is this process' CPU time over all steps, less that of a bare `exec` of the same command in as many sandboxes, measured
right after it. Other programs disturb the wall times. The task is prepared once before. Exit code 1: target missed.
"""

import argparse
import os
import platform
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent.backends.base import Message, ToolCall
from agent.config import Config, load_config
from agent.environments.kernel_env import KernelEnv
from agent.loop.perform import MERGED
from agent.tasks.task import Task, text_sha256

TARGET_MS = 20.0
TEXT = """\
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1.0
def get_inputs():
    return [torch.randn(8)]
def get_init_inputs():
    return []
"""
TASK = Task(path=Path("/x/model.py"), name="steps", text=TEXT, sha256=text_sha256(TEXT))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--kind", choices=("bubblewrap", "none", "docker"), default="bubblewrap")
    options = parser.parse_args()
    settings = [f"sandbox.kind={options.kind}", "sandbox.i_understand=true", "judge.target=cpu"]
    config = load_config(settings=[*settings, "limits.time_s=0", "limits.turns=0"])
    with tempfile.TemporaryDirectory() as scratch:
        return report(run(config, Path(scratch), options.episodes, options.steps), options)


def run(config: Config, scratch: Path, episodes: int, steps: int) -> dict[str, float]:
    envs = [KernelEnv(TASK, config=config, output=scratch) for _ in range(episodes)]
    envs[0].reset()  # fills the caches of this task
    with ThreadPoolExecutor(episodes) as pool:
        began = time.perf_counter()
        list(pool.map(KernelEnv.reset, envs))
        opened_s = time.perf_counter() - began
        wall_s, cpu_s = timed(pool, envs, lambda env, number: env.step(call(number)), steps)
        _, bare_s = timed(pool, envs, bare, steps)
        list(pool.map(KernelEnv.close, envs))
    total = episodes * steps
    return {
        "opened_s": opened_s,
        "steps_per_s": total / wall_s,
        "step_cpu_ms": 1000 * cpu_s / total,
        "own_cpu_ms": 1000 * (cpu_s - bare_s) / total,
    }


def timed(
    pool: ThreadPoolExecutor, envs: list[KernelEnv], work: Callable[[KernelEnv, int], object], steps: int
) -> tuple[float, float]:
    """Wall and CPU seconds of this process for `steps` rounds of work in each environment, all at once."""
    together = threading.Barrier(len(envs))

    def play(env: KernelEnv) -> None:
        together.wait()
        for number in range(steps):
            work(env, number)

    began, began_cpu = time.perf_counter(), time.process_time()
    list(pool.map(play, envs))
    return time.perf_counter() - began, time.process_time() - began_cpu


def call(number: int) -> Message:
    arguments = f'{{"command": "echo {number}"}}'
    return Message(role="assistant", content="", tool_calls=(ToolCall(id="", name="bash", arguments=arguments),))


def bare(env: KernelEnv, number: int) -> None:
    assert env._session is not None
    env._session.bench.sandbox.exec((*MERGED, f"echo {number}"), timeout_s=60)


def report(found: dict[str, float], options: argparse.Namespace) -> int:
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, sandbox {options.kind}")
    print(f"{options.episodes} episodes at once, {options.steps} steps each: opened in {found['opened_s']:.1f} s")
    print(f"{found['steps_per_s']:.1f} steps per second; CPU of this process per step: {found['step_cpu_ms']:.2f} ms")
    print(f"own CPU time per step: {found['own_cpu_ms']:.2f} ms (target {TARGET_MS:g}), peak memory {peak_mb:.0f} MB")
    return 1 if found["own_cpu_ms"] > TARGET_MS else 0


if __name__ == "__main__":
    sys.exit(main())
