"""How long building, verifying and judging take after an edit: `python benchmarks/gpu_edit.py [--target cpu]`.

Covers builds from nothing but the warmed cache (a kernel with a launcher; the same kernel with a pybind binding); after
a change of one kernel, with baselines cached: a build, verifying in a sandbox that runs already, the actions verify and
profile as an episode runs them with a tool that stands by, a judgement by such a tool, and one in a fresh sandbox. Does
not cover what a model needs to think: a tool that stands by is waited for until it is ready. Settings come from
agent.toml in the current folder and from --set.
"""

import argparse
import contextlib
import functools
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STEPS = ("builds", "verify", "actions", "standing", "judge")
sys.path.insert(0, str(ROOT))

from agent.batch.leases import DevicePool  # noqa: E402
from agent.config import Config, default_files, load_config  # noqa: E402
from agent.judging.cache import warm  # noqa: E402
from agent.judging.judge import judge_submission  # noqa: E402
from agent.judging.sandboxes import episode_spec, judging_sandbox  # noqa: E402
from agent.judging.tool_runs import Rules, Target, run_verify  # noqa: E402
from agent.loop.actions import ACTIONS, Action  # noqa: E402
from agent.loop.perform import build_ahead, run_tool  # noqa: E402
from agent.loop.standby import Reserve, Standby  # noqa: E402
from agent.loop.workbench import Workbench  # noqa: E402
from agent.sandbox.base import CACHE, TOOLS, WORKSPACE, Sandbox  # noqa: E402
from agent.sandbox.open import open_sandbox  # noqa: E402
from agent.tasks.task import Task, load_task  # noqa: E402

MODEL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x + 0.5


def get_inputs():
    return [torch.randn(ROWS, 4096)]


def get_init_inputs():
    return []
"""
KERNEL = {
    "cuda": """#include <cuda_runtime.h>
#include <cstdint>
__global__ void swish_kernel(const float* x, float* y, int64_t n) {
  const int64_t at = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * 4;
  if (at >= n) return;
  const float4 v = *reinterpret_cast<const float4*>(x + at);
  *reinterpret_cast<float4*>(y + at) = make_float4(v.x / (1.0f + expf(-v.x)) + 0.5f, v.y / (1.0f + expf(-v.y)) + 0.5f,
                                                   v.z / (1.0f + expf(-v.z)) + 0.5f, v.w / (1.0f + expf(-v.w)) + 0.5f);
}
extern "C" void swish_launch(const float* x, float* y, int64_t n, cudaStream_t stream) {
  swish_kernel<<<(n / 4 + 255) / 256, 256, 0, stream>>>(x, y, n);
}
""",
    "cpu": """#include <cmath>
#include <cstdint>
extern "C" void swish_launch(const float* x, float* y, int64_t n) {
#pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (1.0f + std::exp(-x[i])) + 0.5f;
}
""",
}
STREAM = {"cuda": (", cudaStream_t stream", ", stream"), "cpu": ("", "")}
LAUNCHER = """#include "../launcher.h"
static void swish(const float* x, float* y, int64_t n{declared}) {{ swish_launch(x, y, n{passed}); }}
REGISTER_LAUNCHER(swish);
"""
BINDING = {
    "cuda": """#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include <c10/cuda/CUDAStream.h>
#include "../binding_registry.h"
extern "C" void swish_launch(const float* x, float* y, int64_t n, cudaStream_t stream);
static void swish(torch::Tensor x, torch::Tensor y, int64_t n) {
  swish_launch(x.data_ptr<float>(), y.data_ptr<float>(), n, c10::cuda::getCurrentCUDAStream().stream());
}
static void register_swish(pybind11::module& m) { m.def("swish", &swish); }
REGISTER_BINDING(swish, register_swish);
""",
    "cpu": """#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include "../binding_registry.h"
extern "C" void swish_launch(const float* x, float* y, int64_t n);
static void swish(torch::Tensor x, torch::Tensor y, int64_t n) {
  swish_launch(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
static void register_swish(pybind11::module& m) { m.def("swish", &swish); }
REGISTER_BINDING(swish, register_swish);
""",
}
MODEL_NEW = """import torch
import torch.nn as nn

import {module}


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        {module}.swish(x, y, x.numel())
        return y
"""


def submission(folder: Path, target: Target, *, binding: bool) -> Path:
    (folder / "kernels").mkdir(parents=True)
    suffix = "cu" if target == "cuda" else "cpp"
    kernel = KERNEL[target]
    if binding:
        (folder / "kernels" / "swish_binding.cpp").write_text(BINDING[target])
    else:
        declared, passed = STREAM[target]
        kernel += LAUNCHER.format(declared=declared, passed=passed)
    (folder / "kernels" / f"swish.{suffix}").write_text(kernel)
    (folder / "model_new.py").write_text(MODEL_NEW.format(module=f"{target}_extension"))
    for path in (folder, folder / "kernels"):
        path.chmod(0o755)
    return folder


def edit(folder: Path, number: int) -> None:
    """A change that the compiler cannot skip."""
    for path in (folder / "kernels").glob("swish.c*"):
        first = path.read_text().splitlines()
        path.write_text(
            "\n".join([*(line for line in first if not line.startswith("// edit")), f"// edit {number}", ""])
        )


@functools.cache
def gpus() -> DevicePool:
    return DevicePool.of_machine("cuda")


@contextlib.contextmanager
def device(config: Config) -> Iterator[dict[str, str]]:
    if config.judge.target == "cpu":
        yield {}
        return
    with gpus().for_job().lease(leave=lambda: False) as variables:
        yield dict(variables or {})


def build(sandbox: Sandbox, target: Target, *flags: str) -> dict:
    argv = [sandbox.python, "-I", f"{TOOLS}/build.py", "--workspace", WORKSPACE, "--target", target, "--cache", CACHE]
    done = sandbox.exec([*argv, *flags], timeout_s=300)
    report = json.loads(done.stdout.text())
    if report["status"] != "built":
        sys.exit(f"the build failed: {report['reasons']} {report['log_tail'][-500:]}")
    return report


def timed_builds(config: Config, task: Task, folder: Path, target: Target, repeats: int) -> None:
    for name, binding in (("launcher", False), ("pybind binding", True)):
        work = submission(folder / name.replace(" ", "-"), target, binding=binding)
        with judging_sandbox(config, target=target, workspace=work, cache=warm(config, task)) as sandbox:
            cold = [build(sandbox, target, "--fresh")["seconds"] for _ in range(repeats)]
            build(sandbox, target)
            edited = []
            for number in range(repeats):
                edit(work, number)
                edited.append(build(sandbox, target)["seconds"])
        print(f"build from the warmed cache, {name}: {statistics.median(cold):.1f} s", flush=True)
        print(f"build after an edit of the kernel, {name}: {statistics.median(edited):.1f} s", flush=True)


def timed_verify(config: Config, task: Task, folder: Path, target: Target, repeats: int) -> None:
    work = folder / "launcher"
    with judging_sandbox(config, target=target, workspace=work, cache=warm(config, task)) as sandbox:
        walls = []
        for _ in range(repeats + 1):
            began = time.monotonic()
            report = run_verify(sandbox, task, Rules.of(config.judge, target=target), timeout_s=300)
            walls.append(time.monotonic() - began)
            if report.status != "verified":
                sys.exit(f"verify: {report.status}: {report.reasons}")
    print(
        f"verify alone, in a running sandbox: {statistics.median(walls[1:]):.1f} s (first {walls[0]:.1f} s)", flush=True
    )


@contextlib.contextmanager
def bench(config: Config, task: Task, work: Path, target: Target, scratch: Path) -> Iterator[Workbench]:
    """What an episode acts with: its sandbox, and a tool that stands by."""
    cache, rules = warm(config, task), Rules.of(config.judge, target=target)
    spare = (gpus() if target == "cuda" else DevicePool.of_machine("cpu")).for_job().spare()

    def start(builds: Path) -> Standby:
        return Standby(config, task, rules, cache=cache, builds=builds, spare=spare)

    logs = scratch / "logs"
    logs.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        reserve = Reserve(work, start, target=target)
        stack.callback(reserve.close)
        spec = episode_spec(
            config, target=target, workspace=work, cache=cache, mounts=(), labels={}, builds=reserve.builds
        )
        sandbox = open_sandbox(config.sandbox, spec, target=target)
        stack.callback(sandbox.close)
        reserve.wanted = True
        yield Workbench(sandbox, task, rules, config.limits, logs, reserve)


@dataclass(frozen=True)
class Acted:
    """One action: seconds from the edit to its report, inside the tool, and until a tool stood by before that."""

    wall_s: float
    inside_s: float
    ready_s: float
    report: dict[str, Any]


def acted(config: Config, standing: Workbench, name: str, change: Callable[[], None]) -> Acted:
    """A change and the action `name`, as an episode runs it with a tool that stands by."""
    assert standing.reserve is not None
    began = time.monotonic()
    standing.reserve.prepare()
    if not standing.reserve.wait(timeout_s=300):
        sys.exit("no tool stands by: is there memory to spare, is it switched off?")
    ready_s = time.monotonic() - began
    change()
    began = time.monotonic()
    if config.judge.target == "cuda":
        build_ahead(standing, timeout_s=300)
    with device(config) as variables:
        action = Action(name, name, ACTIONS[name]())
        outcome = run_tool(standing.told(variables), action, timeout_s=300, log_name="log")
    wall_s = time.monotonic() - began
    report = outcome.report or {}
    if report.get("status") not in ("verified", "profiled"):
        sys.exit(f"{name}: {outcome.text}")
    return Acted(wall_s, report["seconds"], ready_s, report)


def timed_actions(config: Config, task: Task, folder: Path, target: Target, repeats: int) -> None:
    with bench(config, task, folder / "launcher", target, folder) as standing:
        for name in ("verify", "profile"):
            change = itertools.count(1000 * len(name))
            found = [
                acted(config, standing, name, lambda: edit(folder / "launcher", next(change)))  # noqa: B023
                for _ in range(repeats + 1)
            ]
            print(
                f"edit to {name}, with a tool that stands by: {told([one.wall_s for one in found])}, of which inside "
                f"the tool {statistics.median(one.inside_s for one in found[1:]):.1f} s; ready after "
                f"{statistics.median(one.ready_s for one in found[1:]):.1f} s",
                flush=True,
            )
            evidence = found[-1].report["evidence"]
            marks = ", ".join(f"{key} {value:.1f}" for key, value in evidence["marks_s"].items())
            print(f"  marks of the last one, in seconds of its life: {marks}", flush=True)
            if "timing" in evidence:
                print(f"  seconds of its rounds: {evidence['timing']['spent_s']}", flush=True)


def judged(config: Config, standing: Workbench, folder: Path, change: Callable[[], None]) -> tuple[float, Any]:
    """Seconds from an edit to the verdict of a tool that stood by, as an episode's end asks it, and the verdict."""
    assert standing.reserve is not None
    standing.reserve.prepare()
    if not standing.reserve.wait(timeout_s=300) or (tool := standing.reserve.take()) is None:
        sys.exit("no tool stands by: is there memory to spare, is it switched off?")
    asked: list[Any] = []

    def by_tool(*arguments: Any, **named: Any) -> Any:
        asked.append(tool.judge(*arguments, **named))
        return asked[-1]

    change()
    began = time.monotonic()
    verdict = judge_submission(config, standing.task, folder, lease=lambda: device(config), standing=by_tool)
    wall_s = time.monotonic() - began
    tool.close()
    tool.join()
    if asked != [verdict]:
        print(f"  the tool that stood by did not decide: {asked}", flush=True)
    if verdict.verdict != "accepted":
        sys.exit(f"judge: {verdict.verdict}: {verdict.reasons}")
    return wall_s, verdict


def timed_standing_judgements(config: Config, task: Task, folder: Path, target: Target, repeats: int) -> None:
    change, work, found = itertools.count(7000), folder / "launcher", []
    for _ in range(repeats + 1):  # a bench each: an episode's tool is taken once
        with bench(config, task, work, target, folder) as standing:
            found.append(judged(config, standing, work, lambda: edit(work, next(change))))
        print(f"  one standing judgement: {found[-1][0]:.1f} s", flush=True)  # a run may be cut off
    print_judged("edit to verdict, by a tool that stands by", [wall for wall, _ in found], found[-1][1])


def print_judged(what: str, walls: list[float], verdict: Any) -> None:
    marks = ", ".join(f"{key} {value:.1f}" for key, value in verdict.evidence["marks_s"].items())
    timing = verdict.evidence["timing"]
    ratios = {key: round(value.ratio, 3) for key, value in (verdict.speedup or {}).items()}
    print(
        f"{what}: {told(walls)}, {ratios}\n  marks of the last one, in seconds: {marks}, rounds "
        f"{len(timing['rounds_us']['eager'])}, seconds of its rounds: {timing['spent_s']}",
        flush=True,
    )


def timed_judgements(config: Config, task: Task, folder: Path, repeats: int) -> None:
    for name in ("launcher", "pybind-binding"):
        walls = []
        for number in range(repeats + 1):
            edit(folder / name, 100 + number)
            began = time.monotonic()
            verdict = judge_submission(config, task, folder / name, lease=lambda: device(config))
            walls.append(time.monotonic() - began)
            if verdict.verdict != "accepted":
                sys.exit(f"judge: {verdict.verdict}: {verdict.reasons}")
        print_judged(f"edit to verdict, {name}", walls, verdict)


def told(walls: list[float]) -> str:
    return f"{statistics.median(walls[1:]):.1f} s (first {walls[0]:.1f} s)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--only", choices=STEPS, action="append")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    flags = parser.parse_args()
    config = load_config(files=default_files(Path.cwd()), settings=flags.settings, flags={"judge.target": flags.target})
    folder = Path(tempfile.mkdtemp(prefix="gpu-edit-"))
    folder.chmod(0o755)
    try:
        (folder / "model.py").write_text(MODEL.replace("ROWS", str(flags.rows)))
        task = load_task(folder / "model.py")
        steps = flags.only or STEPS
        began = time.monotonic()
        warm(config, task)
        print(f"cache for target {flags.target} filled in {time.monotonic() - began:.1f} s", flush=True)
        if "builds" in steps:
            timed_builds(config, task, folder, flags.target, flags.repeats)
        else:
            submission(folder / "launcher", flags.target, binding=False)
            submission(folder / "pybind-binding", flags.target, binding=True)
        if "verify" in steps:
            timed_verify(config, task, folder, flags.target, flags.repeats)
        if "actions" in steps:
            timed_actions(config, task, folder, flags.target, flags.repeats)
        if "standing" in steps:
            timed_standing_judgements(config, task, folder, flags.target, flags.repeats)
        if "judge" in steps:
            timed_judgements(config, task, folder, flags.repeats)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
