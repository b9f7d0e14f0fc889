"""The child's side of time_tasks.py: measures one text after another; jobs in and answers out are JSON lines.

A job is {"what": "eager" | "compile", "code", "resize"}. An answer holds times in milliseconds, or `error`; `lost` says
that the device cannot be used any more in this process, so that the parent has to start another one. With `resize`,
a text whose time falls outside of the band is measured again with another `batch_size`, and the answer names the last.
"""

import gc
import json
import os
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from referee import loading, tree

SEED: Final = 20260101
CALLS: Final = 15
ENOUGH_S: Final = 0.4
SAME: Final = 1e-3
# A time nearer to the ends of 1 to 100 ms would lie outside the next time; AIM_MS is where other sizes aim at.
LOW_MS, HIGH_MS, AIM_MS = 1.15, 85.0, 4.0
SIZES: Final = 4
BATCH: Final = re.compile(r"^batch_size = (\d+)$", re.MULTILINE)
LOST: Final = ("CUDA error", "CUDNN_STATUS", "CUBLAS_STATUS")  # most of these stay with the process
Row = dict[str, Any]


class Stopwatch:
    """Measures on one target. `memory_bytes` bounds what another size of a task may need."""

    def __init__(self, target: str, memory_bytes: int) -> None:
        self.target = target
        self.memory_bytes = memory_bytes

    def answer(self, job: Row) -> Row:
        """Never raises for what a text does."""
        made: Row = {}
        try:
            made = self.compiled(job["code"]) if job["what"] == "compile" else self.eager(job["code"], job["resize"])
        except Exception as error:
            text = " ".join(str(error).split())
            made = {"error": f"{type(error).__name__}: {text[:300]}", "lost": _lost(text)}
        gc.collect()
        torch._dynamo.reset()
        if self.target == "cuda" and not made.get("lost"):
            torch.cuda.empty_cache()
        return made

    def eager(self, code: str, resize: bool) -> Row:
        """Eager times, of the first size in the band if there is one; `tried` are the others: batch and time."""
        tried: list[tuple[int, float]] = []
        while True:
            found, needed = self._eager_once(code)
            batch = BATCH.search(code)
            if not (resize and batch) or LOW_MS <= found["eager_ms"] <= HIGH_MS or len(tried) == SIZES:
                break
            now = int(batch[1])
            other = self._other_batch(now, found["eager_ms"], needed)
            if other == now or other in [one for one, _ in tried]:
                break
            tried.append((now, found["eager_ms"]))
            code = BATCH.sub(f"batch_size = {other}", code, count=1)
        if tried:
            found |= {"batch_size": int(BATCH.search(code)[1]), "code": code, "tried": tried}  # type: ignore[index]
        return found

    def _eager_once(self, code: str) -> tuple[Row, int]:
        model, inputs = self._made(code)
        outputs = list(tree.leaves_of(model(*inputs)))
        times = self._repeated(lambda: model(*inputs))
        found: Row = {"eager_ms": _short(statistics.median(times)), "eager_min_ms": _short(min(times))}
        needed = 2 * sum(leaf.numel() * leaf.element_size() for leaf in [*outputs, *tree.leaves_of(inputs)])
        if self.target == "cuda":
            found["peak_bytes"] = needed = torch.cuda.max_memory_allocated()
        return found, needed

    def _other_batch(self, batch: int, eager_ms: float, needed: int) -> int:
        """Time and memory grow in proportion to it; three significant bits, so that sizes stay plain."""
        ratio = min(AIM_MS / max(eager_ms, 1e-3), self.memory_bytes / max(needed, 1))
        wanted = max(1, int(batch * ratio))
        drop = max(0, wanted.bit_length() - 3)
        return (wanted >> drop) << drop

    def compiled(self, code: str) -> Row:
        """Eager and compiled of the same moment, and whether their outputs are equal."""
        model, inputs = self._made(code)
        want = list(tree.leaves_of(model(*inputs)))
        times = self._repeated(lambda: model(*inputs))
        found: Row = {"eager_ms": _short(statistics.median(times)), "eager_min_ms": _short(min(times))}
        if self.target == "cuda":
            found["peak_bytes"] = torch.cuda.max_memory_allocated()
        call = torch.compile(model)
        got = list(tree.leaves_of(call(*inputs)))
        found["equal"] = len(got) == len(want) and all(_close(one, other) for one, other in zip(got, want, strict=True))
        times = self._repeated(lambda: call(*inputs))
        return found | {"compile_ms": _short(statistics.median(times)), "compile_min_ms": _short(min(times))}

    def _made(self, code: str) -> tuple[torch.nn.Module, list[Any]]:
        if self.target == "cuda":
            torch.cuda.reset_peak_memory_stats()
        task = loading.load_task(code, device=self.target)
        return task.build(seed=SEED), task.inputs(seed=SEED)

    def _repeated(self, call: Callable[[], Any]) -> list[float]:
        for _ in range(2):
            call()
        times: list[float] = []
        until = time.monotonic() + ENOUGH_S
        while len(times) < 3 or (len(times) < CALLS and time.monotonic() < until):
            self._settle()
            started = time.perf_counter()
            call()
            self._settle()
            times.append((time.perf_counter() - started) * 1e3)
        return times

    def _settle(self) -> None:
        if self.target == "cuda":
            torch.cuda.synchronize()


def _lost(text: str) -> bool:
    return any(word in text for word in LOST) and "out of memory" not in text


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    if not other.numel():
        return True
    scale = float(other.square().mean(dtype=torch.float64).sqrt())
    return float((one - other).abs().max()) <= SAME * max(scale, 1e-12) * 10


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def main() -> int:
    target, memory_bytes = sys.argv[1], int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    # As the judge has it under --precision strict.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if target == "cuda" and not torch.cuda.is_available():
        hello: Row = {"error": "torch sees no GPU here"}
    else:
        name = torch.cuda.get_device_name() if target == "cuda" else f"{len(os.sched_getaffinity(0))} cores"
        hello = {"device": name, "torch": torch.__version__}
    out.write(json.dumps(hello) + "\n")
    out.flush()
    watch = Stopwatch(target, memory_bytes)
    for line in sys.stdin:
        answer = watch.answer(json.loads(line))
        out.write(json.dumps(answer) + "\n")
        out.flush()
        if answer.get("lost"):
            break
    return 0


if __name__ == "__main__":
    # Threads that a text left running would keep the interpreter alive.
    code = main()
    sys.stderr.flush()
    os._exit(code)
