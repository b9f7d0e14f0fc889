"""A tiny task with a right and a wrong submission, and the configuration that the environment tests share."""

from pathlib import Path
from typing import Any

import pytest

from agent.config import Config, load_config
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import Task, text_sha256

TEXT = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2.0 + 1.0)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
TASK = Task(path=Path("/tasks/tiny/model.py"), name="tiny", text=TEXT, sha256=text_sha256(TEXT))
KERNEL = """\
#include "../binding_registry.h"
#include <torch/types.h>

static torch::Tensor scaled_relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const float* xs = x.data_ptr<float>();
  float* outs = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float y = xs[i] * 2.0f + 1.0f;
    outs[i] = y > 0.0f ? y : 0.0f;
  }
  return out;
}

static void add(pybind11::module& m) { m.def("scaled_relu", &scaled_relu); }
REGISTER_BINDING(scaled_relu, add);
"""
MODEL_NEW = """\
import cpu_extension
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return cpu_extension.scaled_relu(x)
"""


def configuration(*settings: str) -> Config:
    """Bubblewrap, CPU; skips where bubblewrap cannot be used."""
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu", *settings])
    report = check_bubblewrap(config.sandbox)
    if not report.usable:
        pytest.skip(f"bubblewrap cannot be used here: {report.detail}")
    return config


def write_submission(folder: Path) -> Path:
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "relu.cpp").write_text(KERNEL)
    (folder / "model_new.py").write_text(MODEL_NEW)
    return folder


def calling(name: str, /, **arguments: Any) -> dict[str, Any]:
    """An OpenAI-style assistant message with one call, its arguments as an object."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}],
    }
