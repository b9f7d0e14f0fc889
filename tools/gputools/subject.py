"""Runs a submission's forward a few times, for a profiler or a checker around this process or inside it.

Not a judge: the submission runs beside the reference here, and what comes out is advice to whoever writes it. Prints
one JSON object as the last line of standard output.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from referee import loading

SEED: Final = 20
COPY_BYTES: Final = 1 << 30
COPIES: Final = 10
MOST_KERNELS: Final = 40


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True, help="file with the text of model.py")
    parser.add_argument("--folder", type=Path, required=True, help="folder with model_new.py")
    parser.add_argument("--module-folder")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--reference", action="store_true", help="run model.py instead: what is found then is torch's")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="profile with torch's profiler and print a kernel table")
    flags = parser.parse_args()
    # The last line of stdout must be the report, whatever a submission prints.
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        report = run(flags)
    except loading.LoadError as error:
        report = {"error": {"code": error.code, "detail": error.detail}}
    except Exception as error:
        report = {"error": {"code": "runtime.exception", "detail": f"{type(error).__name__}: {error}"[:2000]}}
    stdout.write("\n" + json.dumps(report) + "\n")
    stdout.flush()
    return 0


def run(flags: argparse.Namespace) -> dict[str, Any]:
    torch.set_grad_enabled(False)
    task = loading.load_task(flags.model.read_text(encoding="utf-8"), device=flags.device)
    model = task.build(seed=SEED) if flags.reference else submission(task, flags)
    inputs = task.inputs(seed=SEED + 1)
    outputs = None
    for _ in range(flags.warm_up):
        outputs = model(*inputs)
    finish(flags.device)
    if flags.table:
        return table(model, inputs, outputs, flags)
    if flags.device == "cuda":
        torch.cuda.profiler.start()
    for _ in range(flags.calls):
        model(*inputs)
    finish(flags.device)
    if flags.device == "cuda":
        torch.cuda.profiler.stop()
    return {"ran": flags.warm_up + flags.calls}


def submission(task: Any, flags: argparse.Namespace) -> torch.nn.Module:
    reference = task.build(seed=SEED)
    init = task.init_inputs(seed=SEED)
    model = loading.load_submission(flags.folder, module_folder=flags.module_folder, init=init, seed=SEED)
    model = model.to(flags.device)
    loading.load_state(model, dict(reference.state_dict()))
    return model


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def table(model: torch.nn.Module, inputs: list[Any], outputs: Any, flags: argparse.Namespace) -> dict[str, Any]:
    """Time in each kernel over `calls` calls, the bytes that must move, and this device's copy bandwidth."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(flags.calls):
            model(*inputs)
        finish(flags.device)
    report = {"calls": flags.calls, "kernels": kernel_rows(profile.events(), flags.calls)}
    report["bytes"] = {
        "inputs": size_of(inputs),
        "outputs": size_of(outputs),
        "state": size_of(list(model.state_dict().values())),
    }
    if flags.device == "cuda":
        report["copy_bytes_per_s"] = copy_bandwidth()
        properties = torch.cuda.get_device_properties(0)
        report["device"] = {"name": properties.name, "multiprocessors": properties.multi_processor_count}
    return report


def kernel_rows(events: Any, calls: int) -> list[dict[str, Any]]:
    """By total time, largest first; copies and fills of the driver are rows like kernels."""
    cuda = torch.autograd.DeviceType.CUDA
    rows: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.device_type != cuda or getattr(event, "is_user_annotation", False):
            continue
        row = rows.setdefault(event.name, {"name": event.name[:200], "count": 0, "total_us": 0.0})
        row["count"] += 1
        row["total_us"] += event.time_range.elapsed_us()
    total = sum(row["total_us"] for row in rows.values()) or 1.0
    for row in rows.values():
        row["per_call_us"] = round(row["total_us"] / calls, 3)
        row["launches_per_call"] = round(row["count"] / calls, 2)
        row["share"] = round(row["total_us"] / total, 4)
        row["total_us"] = round(row["total_us"], 3)
    return sorted(rows.values(), key=lambda row: -float(row["total_us"]))[:MOST_KERNELS]


def size_of(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return int(value.numel() * value.element_size())
    if isinstance(value, dict):
        return sum(size_of(item) for item in value.values())
    if isinstance(value, (tuple, list)):
        return sum(size_of(item) for item in value)
    return 0


def copy_bandwidth() -> float:
    """Bytes read and written a second by a copy on the device; the best of a few, since nothing runs faster."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda").fill_(1)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(COPIES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
    return 2 * COPY_BYTES / (best / 1e3)


if __name__ == "__main__":
    sys.exit(main())
