"""Tries one operator in a process of its own: does it exist, what shape does it give, on which numbers, how long?"""

import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn

from crawling import shapes

LIMIT_S: Final = 20.0
WORK_ELEMENTS: Final = 1 << 20
SHAPES: Final = {2: (6, 16), 3: (4, 8, 16), 4: (4, 8, 10, 12), 5: (2, 8, 6, 7, 8)}
Tried = dict[str, Any]


def apart(action: Callable[[], Tried]) -> Tried:
    """What `action` returns, or {"left_out": why}; whatever it does happens in a child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        try:
            found = action()
        except BaseException as error:
            found = {"left_out": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
        with os.fdopen(writer, "w") as channel:
            json.dump(found, channel)
        os._exit(0)
    os.close(writer)
    return _answer(pid, reader)


def _answer(pid: int, reader: int) -> Tried:
    data, until = b"", time.monotonic() + LIMIT_S
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        chunk = os.read(reader, 1 << 16)
        data += chunk
        if not chunk:
            break
    os.close(reader)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return dict(json.loads(data))
    except ValueError:
        return {"left_out": "it ended its process, or took too long"}


def recipe(entry: dict[str, Any]) -> Tried:
    """The recipe on every rank, every pick: ranks for which the shape rule holds, and the numbers' properties."""
    names = _imports(entry)
    ranks, weights, out = [], False, None
    problems: list[str] = []
    for rank in entry["ranks"]:
        try:
            for picks in shapes.all_picks(entry):
                _, module = _made(entry, SHAPES[rank], picks, names)
                x, y = _numbers(SHAPES[rank], entry.get("domain", "any")), torch.randn(SHAPES[rank])
                out = _called(entry, SHAPES[rank], picks, names, module, x, y)
                told = shapes.after(entry, SHAPES[rank], picks)
                if tuple(out.shape) != told:
                    raise ValueError(f"the rule says {told}, the operator gives {tuple(out.shape)}")
                weights = weights or (module is not None and any(True for _ in module.parameters()))
            ranks.append(rank)
        except Exception as error:
            problems.append(f"rank {rank}: {' '.join(str(error).split())[:160]}")
    if out is None or not ranks:
        return {"left_out": "; ".join(problems) or "no rank works"}
    weights = weights or bool(entry.get("weight"))
    found: Tried = {"ranks": ranks, "weights": weights, "cpu_ns": _recipe_work(entry, ranks[0], names)}
    return found | _range(out) | ({"problems": problems} if problems else {})


def unary(make: Callable[[], Callable[[torch.Tensor], Any]]) -> Tried:
    """A callable of one tensor: kept where it returns a float tensor of the same shape, always the same, finite on
    some usual numbers, and neither the input nor a step function.
    """
    call, ranks = make(), []
    for rank, shape in SHAPES.items():
        try:
            out = call(torch.rand(shape) + 0.25)
        except Exception:
            continue
        if not isinstance(out, torch.Tensor) or out.dtype != torch.float32:
            return {"left_out": "does not return a float tensor"}
        if tuple(out.shape) != shape:
            return {"left_out": f"shape {tuple(out.shape)} from {shape}, needs a rule of its own"}
        ranks.append(rank)
    if not ranks:
        return {"left_out": "takes more than a tensor"}
    domain = next((name for name in ("any", "positive", "unit") if _finite(call, name)), None)
    if domain is None:
        return {"left_out": "not finite on usual numbers"}
    x = _numbers((64, 64), domain) if 2 in ranks else _numbers(SHAPES[ranks[0]], domain)
    torch.manual_seed(0)
    out = call(x.clone())
    torch.manual_seed(1)
    if not torch.equal(out, call(x.clone())):
        return {"left_out": "random"}
    if torch.equal(out, x):
        return {"left_out": "returns its input"}
    if out.unique().numel() < 24:
        return {"left_out": "a step function"}
    given = x.clone()
    call(given)
    if not torch.equal(given, x):
        return {"left_out": "changes its input"}
    same_on = [name for name in ("positive", "unit") if _unchanged(call, name)]
    return {
        "ranks": ranks,
        "domain": domain,
        "same_on": same_on,
        "cpu_ns": _work(call, domain),
        "print": _fingerprint(call, x),
    } | _range(out)


def _finite(call: Callable[[torch.Tensor], Any], domain: str) -> bool:
    try:
        return bool(torch.isfinite(call(_numbers((64, 64), domain))).all())
    except Exception:
        return False


def _unchanged(call: Callable[[torch.Tensor], Any], domain: str) -> bool:
    x = _numbers((64, 64), domain)
    try:
        return bool(torch.equal(call(x.clone()), x))
    except Exception:
        return False


def _numbers(shape: tuple[int, ...], domain: str) -> torch.Tensor:
    torch.manual_seed(0)
    if domain == "any":
        return torch.randn(shape) * 1.5
    return torch.rand(shape) * 0.98 + 0.01 if domain == "unit" else torch.rand(shape) * 3 + 0.05


def _range(out: torch.Tensor) -> Tried:
    low, high = float(out.min()), float(out.max())
    if low <= 0:
        return {"range": "any"}
    return {"range": "unit" if high < 1 else "positive"}


def _fingerprint(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> str:
    """Equal for two names of one function."""
    return ",".join(f"{value:.4g}" for value in call(x.clone()).flatten()[:64].tolist())


def _work(call: Callable[[torch.Tensor], Any], domain: str) -> float:
    x = _numbers((1024, WORK_ELEMENTS // 1024), domain)
    return _nanoseconds(lambda: call(x), x.numel())


def _recipe_work(entry: dict[str, Any], rank: int, names: dict[str, Any]) -> float:
    """Nanoseconds of one core per input element; 0.25 for what is counted in FLOPs instead."""
    if entry["family"] in ("matrix product", "convolution", "attention", "recurrence", "transformers"):
        return 0.25
    shape = {2: (1024, 1024), 3: (16, 64, 1024), 4: (16, 64, 32, 32), 5: (8, 16, 16, 32, 16)}[rank]
    picks = next(iter(shapes.all_picks(entry)))
    _, module = _made(entry, shape, picks, names)
    x, y = _numbers(shape, entry.get("domain", "any")), torch.randn(shape)
    return _nanoseconds(lambda: _called(entry, shape, picks, names, module, x, y), x.numel())


def _nanoseconds(call: Callable[[], Any], elements: int) -> float:
    """In powers of two, so that it is the same after the next crawl on a machine like this one."""
    found = _least(call) * 1e9 / elements
    power = 0.25
    while power * 1.5 < found and power < 1024:
        power *= 2
    return power


def _least(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(6):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def _imports(entry: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
    for line in entry.get("imports", ()):
        exec(line, names)
    return names


def _made(entry: dict[str, Any], shape: tuple[int, ...], picks: Tried, names: dict[str, Any]) -> tuple[str, Any]:
    if not entry["create"]:
        return "", None
    text = entry["create"].format(**shapes.sizes(entry, shape), **picks)
    return text, eval(text, dict(names)).eval()


def _called(
    entry: dict[str, Any],
    shape: tuple[int, ...],
    picks: Tried,
    names: dict[str, Any],
    module: Any,
    x: torch.Tensor,
    y: torch.Tensor,
) -> torch.Tensor:
    here = dict(names) | {"module": module, "x": x, "y": y}
    known = shapes.sizes(entry, shape) | picks
    if "weight" in entry:
        here["w"] = torch.randn([known[name] for name in entry["weight"]])
    out = eval(entry["call"].format(self="module", x="x", y="y", w="w", **known), here)
    assert isinstance(out, torch.Tensor)
    return out
