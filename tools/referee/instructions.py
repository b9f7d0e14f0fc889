"""torch.compile on a CPU without its trial builds: the same kernels, seconds earlier in a fresh process.

In every fresh process torch.compile builds a small program for each instruction set that the processor claims, and a
precompiled header for the few kernels to come: 12 s of two cores for a small model where 3 s do (torch 2.13, g++ 12).
Whoever fills a task's compile cache tries without, and leaves a mark there where that went well; a compiler that does
not know the processor's instructions has its trial builds as before. The choice is a part of torch's cache key, so that
whoever reads the cache makes the same.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

CACHE: Final = "TORCHINDUCTOR_CACHE_DIR"
MARK: Final = "instructions-as-promised"
T = TypeVar("T")


def promised() -> bool:
    """Whether the compile cache of this process was filled without trial builds."""
    return CACHE in os.environ and Path(os.environ[CACHE], MARK).is_file()


def believe(believed: bool) -> None:
    """Take /proc/cpuinfo at its word, or try everything as torch does by itself."""
    import torch._inductor.config as inductor
    from torch._inductor import cpu_vec_isa

    inductor.cpp.vec_isa_ok = True if believed else None
    inductor.cpp_cache_precompile_headers = not believed
    cpu_vec_isa.valid_vec_isa_list.cache_clear()


def first_call(call: Callable[[], T]) -> T:
    """What `call` gives, in which torch.compile compiles: without trial builds if that works, otherwise with them."""
    import torch._dynamo

    believe(True)
    try:
        found = call()
    except Exception:
        believe(False)
        torch._dynamo.reset()
        return call()
    with contextlib.suppress(OSError, KeyError):
        Path(os.environ[CACHE], MARK).touch()
    return found
