"""Writes run folders the way a run does (event writer, real models), so that views and reports have a run to show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.backends.base import Message, Reply, ToolSchema, Usage
from agent.config import Config, load_config
from agent.tasks.task import load_task
from agent.trajectory.events import (
    ActionEvent,
    Event,
    MessageEvent,
    ObservationEvent,
    ReplyEvent,
    Resumed,
    RunEnd,
    RunStart,
    SnapshotEvent,
    StopEvent,
    StopReason,
    VerdictEvent,
)
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import EventWriter

MODEL = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x + self.bias)


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return [32]
"""
MODEL_NEW = """\
import torch

import cpu_extension


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        return cpu_extension.bias_relu(x, self.bias)
"""
KERNEL = """\
#include <torch/types.h>

torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  const float* b = bias.data_ptr<float>();
  float* out = y.data_ptr<float>();
  const int64_t rows = x.size(0), cols = x.size(1);
#pragma omp parallel for
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      const float v = in[i * cols + j] + b[j];
      out[i * cols + j] = v > 0 ? v : 0;
    }
  return y;
}
"""
BINDING = """\
#include "../binding_registry.h"

torch::Tensor bias_relu(torch::Tensor x, torch::Tensor bias);

static void offer(pybind11::module& m) { m.def("bias_relu", &bias_relu); }
REGISTER_BINDING(bias_relu, offer);
"""
DIFF = """\
--- a/kernels/bias_relu.cpp
+++ b/kernels/bias_relu.cpp
@@ -8,3 +8,4 @@
   const int64_t rows = x.size(0), cols = x.size(1);
+#pragma omp parallel for
   for (int64_t i = 0; i < rows; ++i)
-    for (int j = 0; j < cols; ++j) {
+    for (int64_t j = 0; j < cols; ++j) {
"""
SPEEDUP = {
    "eager": {"ratio": 1.93, "low": 1.88, "high": 1.97, "call": "faster"},
    "compile": {"ratio": 1.21, "low": 1.16, "high": 1.26, "call": "faster"},
}
MEDIAN_US = {"candidate": 412.0, "eager": 795.2, "compile": 498.5}


def accepted(**changes: Any) -> dict[str, Any]:
    """An accepted verdict in the shape of the contract."""
    verdict = {
        "schema_version": 1,
        "verdict": "accepted",
        "reasons": [],
        "correct": True,
        "reward": 3,
        "speedup": SPEEDUP,
        "median_us": MEDIAN_US,
        "target": "cpu",
        "policy": "strict",
        "precision": "strict",
        "device": {"name": "two-core processor", "threads": 2},
        "evidence": {},
    }
    return verdict | changes


def rejected(code: str = "numeric.mismatch", detail: str = "output 0 differs by 0.3 at [1, 2]") -> dict[str, Any]:
    reasons = [{"code": code, "detail": detail}]
    return accepted(verdict="rejected", reasons=reasons, correct=False, reward=-1, speedup=None, median_us=None)


def build_report(**changes: Any) -> dict[str, Any]:
    report = {
        "schema_version": 1,
        "tool": "build",
        "status": "built",
        "target": "cpu",
        "module": "/tmp/build/cpu_extension.so",
        "sources": ["kernels/bias_relu.cpp", "kernels/bias_relu_binding.cpp"],
        "seconds": 8.2,
    }
    return report | changes


def profile_report() -> dict[str, Any]:
    return {
        "schema_version": 1,
        "tool": "profile",
        "status": "profiled",
        "target": "cpu",
        "speedup": SPEEDUP,
        "median_us": MEDIAN_US,
    }


def task_file(folder: Path, text: str = MODEL) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.py"
    path.write_text(text, encoding="utf-8")
    return path


def submission(folder: Path) -> None:
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    (folder / "model_new.py").write_text(MODEL_NEW)
    (folder / "kernels" / "bias_relu.cpp").write_text(KERNEL)
    (folder / "kernels" / "bias_relu_binding.cpp").write_text(BINDING)


class Recorder:
    """A run folder in the making: each method appends the events of one thing that happens."""

    def __init__(self, base: Path, *, config: Config | None = None, name: str = "bias-relu") -> None:
        task = load_task(task_file(base / name))
        chosen = config or load_config(flags={"judge.target": "cpu"})
        self.folder = RunFolder.create(base / "runs", task, chosen)
        self.events: list[Event] = []
        self._writer = EventWriter(self.folder.events, on_event=self.events.append)
        self._calls = 0
        self._writer.append(
            RunStart,
            run_id=self.folder.run_id,
            task_sha256=task.sha256,
            agent_version="0.1.0",
            backend={"name": "openai:some-model", "base_url": "http://127.0.0.1:8000/v1"},
            sandbox={"kind": "bubblewrap", "memory_gb": 8.0},
            tools=(ToolSchema(name="bash", description="runs a command", parameters={"type": "object"}),),
        )
        self.message("system", "You write kernels.\n" * 40)
        self.message("user", "Here is the task.\n" * 10)

    def message(self, role: Any, content: str, *, origin: Any = "harness") -> None:
        self._writer.append(MessageEvent, message=Message(role=role, content=content), origin=origin)

    def reply(self, turn: int, text: str, *, cost_usd: float | None = None, **fields: Any) -> None:
        usage = Usage(prompt_tokens=2000, completion_tokens=150, cost_usd=cost_usd)
        error = fields.pop("format_error", None)
        reply = Reply(text=text, usage=usage, latency_s=4.2, model="some-model", **fields)
        self._writer.append(ReplyEvent, turn=turn, reply=reply, format_error=error)

    def action(self, turn: int, name: str, arguments: dict[str, Any] | None = None) -> str:
        self._calls += 1
        call_id = f"call-{self._calls}"
        self._writer.append(ActionEvent, turn=turn, call_id=call_id, name=name, arguments=arguments or {})
        return call_id

    def did(self, turn: int, name: str, arguments: dict[str, Any] | None = None, **outcome: Any) -> None:
        """An action and its observation."""
        call_id = self.action(turn, name, arguments)
        fields = {"text": "", "status": "ok", "duration_s": 0.3} | outcome
        self._writer.append(ObservationEvent, turn=turn, call_id=call_id, name=name, **fields)

    def best(self, turn: int, speedup: float) -> None:
        submission(self.folder.best)
        self._writer.append(SnapshotEvent, turn=turn, submission_sha256="ab" * 32, speedup=speedup, is_best=True)

    def stop(self, reason: StopReason = StopReason.SUBMITTED, detail: str = "") -> None:
        self._writer.append(StopEvent, reason=reason, detail=detail)

    def resumed(self, *pending: str) -> None:
        self._writer.append(Resumed, pending=pending)

    def verdict(self, subject: Any, verdict: dict[str, Any], *, sha256: str = "ab" * 32) -> None:
        self._writer.append(VerdictEvent, subject=subject, submission_sha256=sha256, verdict=verdict)

    def end(self, reason: StopReason = StopReason.SUBMITTED, *, reward: int | None = 3, turns: int = 4) -> None:
        self._writer.append(
            RunEnd,
            reason=reason,
            reward=reward,
            turns=turns,
            prompt_tokens=8000,
            completion_tokens=600,
            cost_usd=None,
            wall_s=63.0,
        )
        self._writer.close()


def whole_run(base: Path, **options: Any) -> Recorder:
    """Four turns: a compile error, a repair, a profile, a submission that is accepted."""
    run = Recorder(base, **options)
    submission(run.folder.workspace)
    run.reply(
        1, "First the kernel itself.\nThen the binding.", reasoning="The task is memory bound.\nOne pass will do."
    )
    run.did(1, "write_file", {"path": "kernels/bias_relu.cpp", "content": KERNEL}, diff=DIFF)
    log = run.folder.logs / "0001-compile.txt"
    log.write_text("".join(f"line {n}\n" for n in range(400)))
    error = {
        "file": "kernels/bias_relu.cpp",
        "line": 12,
        "column": 3,
        "severity": "error",
        "message": "‘foo’ was not declared in this scope",
    }
    failed = build_report(status="failed", module=None, diagnostics=[error])
    run.did(
        1,
        "compile",
        text="\n".join(f"line {n}" for n in range(60)),
        report=failed,
        duration_s=8.2,
        log=f"logs/{log.name}",
    )
    run.reply(2, "A typing mistake; I look at the file first.", attempts=3, waited_s=2.5)
    run.did(
        2,
        "bash",
        {"command": "grep -n foo kernels/*.cpp | head; false"},
        status="failed",
        exit_code=1,
        text="kernels/bias_relu.cpp:12: foo\n",
    )
    run.did(2, "edit_file", {"path": "kernels/bias_relu.cpp", "old": "foo", "new": "cols"}, diff=DIFF)
    run.reply(3, "Now it should build.")
    run.did(3, "compile", report=build_report(), duration_s=9.1, text="built")
    run.did(3, "profile", report=profile_report(), duration_s=14.6, text="eager 1.93x, compile 1.21x")
    run.best(3, 1.21)
    run.reply(4, "Good enough.")
    run.did(4, "submit", {"summary": "one fused pass with OpenMP"})
    run.stop()
    run.verdict("final", accepted())
    run.verdict("best", accepted())
    run.end()
    return run


def said(lines: Sequence[str], *words: str) -> bool:
    """Whether one line holds all words."""
    return any(all(word in line for word in words) for line in lines)
