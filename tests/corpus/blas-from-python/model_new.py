import ctypes
import os

import cpu_extension
import torch
from torch import nn

LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
GEMM = next(getattr(LIBRARY, name) for name in ("sgemm_", "SGEMM", "mkl_sgemm_") if hasattr(LIBRARY, name))


def pointer(number):
    return ctypes.byref(ctypes.c_int(number))


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, hidden))

    def forward(self, x):
        m, k, n = x.shape[0], x.shape[1], self.weight.shape[1]
        out = torch.empty(m, n)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        a, b, c = (ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, out))
        GEMM(b"N", b"N", pointer(n), pointer(m), pointer(k), ctypes.byref(one), b, pointer(n), a, pointer(k), ctypes.byref(zero), c, pointer(n))
        cpu_extension.leaky(out)
        return out
