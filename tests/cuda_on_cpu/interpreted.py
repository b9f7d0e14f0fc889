"""Generated Triton modules under Triton's interpreter: set TRITON_INTERPRET=1 before anything imports triton.

Covers values and masks of loads and stores. Does not cover compilation, layouts, time, or the rounding of CUDA's
functions; those of libdevice, which only a GPU has, are NumPy's here.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import forwards
import torch
from torch import nn


def _of_arrays(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(x: Any) -> Any:
        data = x.handle.data
        return tl.tensor(TensorHandle(function(data).astype(data.dtype), x.handle.dtype), x.type)

    return call


class Libdevice:
    """The functions that kernels take from libdevice."""

    def __init__(self) -> None:
        import numpy as np

        erf = np.vectorize(lambda v: float(torch.erf(torch.tensor(float(v), dtype=torch.float64))), otypes=[float])
        for name, function in {
            "tanh": np.tanh, "log1p": np.log1p, "expm1": np.expm1, "rint": np.rint, "trunc": np.trunc, "erf": erf,
        }.items():  # fmt: skip
            setattr(self, name, _of_arrays(function))


def module(text: str, model: nn.Module, file: Path, *, arguments: Sequence[Any] = ()) -> nn.Module:
    new = forwards.new_module(text, model, file=file, arguments=arguments)
    found = new.forward.__func__.__globals__  # type: ignore[union-attr]
    found["libdevice"] = Libdevice()
    sys.modules.pop("model_new", None)
    return new
