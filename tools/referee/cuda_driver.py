"""The calls of the CUDA driver that torch does not offer: which allocation an address lies in, and sharing one with
another process.

The driver is called through ctypes on libcuda.so.1; every call needs a current context, which torch makes.
"""

import ctypes
from typing import Final

import torch

HANDLE_BYTES: Final = 64  # CU_IPC_HANDLE_SIZE of cuda.h
LAZY_PEER_ACCESS: Final = 1

_driver: ctypes.CDLL | None = None


class CudaError(Exception):
    """The driver refused; `code` is the CUresult."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} failed with CUDA error {code}")
        self.code = code


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


def _call(name: str, *arguments: object) -> None:
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL("libcuda.so.1")
    code = getattr(_driver, name)(*arguments)
    if code:
        raise CudaError(name, code)


def start(device: int = 0) -> None:
    """Make the primary context current in this thread."""
    torch.cuda.set_device(device)
    torch.cuda.current_stream().synchronize()


def allocation_of(address: int) -> tuple[int, int]:
    """(base, size in bytes) of the allocation that `address` lies in."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    _call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    return base.value, size.value


def export(base: int) -> bytes:
    """The handle by which another process of this uid opens the allocation (cudaMalloc's memory only)."""
    handle = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
    return bytes(ctypes.string_at(ctypes.addressof(handle), HANDLE_BYTES))


def open_handle(data: bytes) -> int:
    """The address at which this process sees the other's allocation."""
    handle, address = _Handle(), ctypes.c_uint64()
    ctypes.memmove(ctypes.addressof(handle), data, HANDLE_BYTES)
    _call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, ctypes.c_uint(LAZY_PEER_ACCESS))
    return address.value


def close_handle(address: int) -> None:
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(address))


def view(address: int, count: int) -> torch.Tensor:
    """`count` bytes of device memory as uint8, not owned. torch's own CUDA graphs make their tensors in this way."""
    device = torch.device("cuda", torch.cuda.current_device())
    storage = torch._C._construct_storage_from_data_pointer(address, device, count)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage, 0, (count,), (1,))
