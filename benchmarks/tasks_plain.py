"""`agent tasks check` on 100 plain tasks (matrix products, convolutions, activations, norms with random weights,
reductions): none may be refused. With --kernelbench also on the published known-bad problems, which must not be
admitted as they stand.

`python benchmarks/tasks_plain.py [--kernelbench CHECKOUT] [--lanes 1] [--no-compile]`
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
KNOWN_BAD: Final = (
    "level1/23_*",
    "level1/37_*",
    "level1/39_*",
    "level1/53_*",
    "level2/23_*",
    "level2/80_*",
    "level2/83_*",
)
FORM: Final = """import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}


batch_size = {batch}


def get_inputs():
    return [{draw}(batch_size, {dims})]


def get_init_inputs():
    return []
"""
ACTIVATIONS: Final = (
    "F.relu(x)", "F.gelu(x)", "F.silu(x)", "torch.tanh(x)", "torch.sigmoid(x)", "F.elu(x)", "F.leaky_relu(x, 0.1)",
    "F.softplus(x)", "F.hardswish(x)", "F.mish(x)", "F.selu(x)", "F.hardtanh(x)", "F.logsigmoid(x)", "F.softsign(x)",
    "F.hardsigmoid(x)", "F.log_softmax(x, dim=-1)", "torch.softmax(4 * x, dim=-1)", "F.celu(x)", "F.relu6(3 * x)",
    "F.tanhshrink(x)",
)  # fmt: skip
REDUCTIONS: Final = (
    "x.sum(dim=-1)", "x.mean(dim=-1)", "x.amax(dim=1)", "x.amin(dim=-1)", "torch.logsumexp(x, dim=-1)", "x.std(dim=-1)",
    "x.var(dim=1)", "x.norm(dim=-1)", "x.cumsum(dim=-1)", "x.abs().sum(dim=1)", "x.argmax(dim=-1)",
    "x.square().mean(dim=-1)",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args(argv)
    flags = ["--lanes", str(options.lanes), *(["--no-compile"] if options.no_compile else [])]
    texts = dict(plain())
    with tempfile.TemporaryDirectory(prefix="tasks-plain-") as folder:
        path = Path(folder) / "plain.jsonl"
        path.write_text("".join(json.dumps({"id": id, "code": text}) + "\n" for id, text in texts.items()))
        refused = report(f"{len(texts)} plain tasks", check(str(path), flags), shown=("refused", "error", "rescaled"))
    if options.kernelbench:
        names = [flag for name in KNOWN_BAD for flag in ("--task", name)]
        found = check(str(options.kernelbench), [*names, *flags])
        report("known-bad problems of KernelBench", found, shown=("admitted", "refused", "rescaled", "error"))
    return 1 if refused else 0


def plain() -> Iterator[tuple[str, str]]:
    """100 of them."""
    for at in range(16):
        width, out = 128 << (at % 3), 64 << (at % 4)
        init = (
            f"self.weight = nn.Parameter(torch.randn({width}, {out}))"
            if at % 2
            else f"self.linear = nn.Linear({width}, {out})"
        )
        yield f"matmul-{at}", text(init, "x @ self.weight" if at % 2 else "self.linear(x)", at, f"{width}", 2048)
    for at in range(20):
        n = 1 + at % 3
        kernel, channels = (1, 3, 5)[at % 3], 8 << (at % 2)
        kind = f"ConvTranspose{n}d" if at % 5 == 4 else f"Conv{n}d"
        dims = ", ".join([str(channels), *([("400", "48", "14")[n - 1]] * n)])
        yield f"conv-{at}", text(f"self.conv = nn.{kind}({channels}, 16, {kernel})", "self.conv(x)", at, dims, 8)
    for at in range(28):
        yield f"activation-{at}", text("pass", ACTIVATIONS[at % len(ACTIVATIONS)], at, ("64", "32, 48")[at % 2], 2048)
    for at in range(20):
        name, size, dims = (
            ("LayerNorm", "256", "64, 256"), ("GroupNorm", "4, 16", "16, 32, 32"), ("BatchNorm2d", "16", "16, 32, 32"),
            ("InstanceNorm2d", "16, affine=True", "16, 32, 32"), ("RMSNorm", "256", "64, 256"),
        )[at % 5]  # fmt: skip
        init = f"self.norm = nn.{name}({size}); nn.init.normal_(self.norm.weight)"
        yield f"norm-{at}", text(init, "self.norm(x)", at, dims, 64)
    for at in range(16):
        yield f"reduction-{at}", text("pass", REDUCTIONS[at % len(REDUCTIONS)], at, ("512", "64, 96")[at % 2], 1024)


def text(init: str, forward: str, at: int, dims: str, batch: int) -> str:
    draw = "torch.rand" if at % 4 == 3 else "torch.randn"
    return FORM.format(init=init, forward=forward, dims=dims, batch=batch, draw=draw)


def check(source: str, flags: Sequence[str]) -> dict[str, Any]:
    argv = [
        sys.executable,
        "-m",
        "agent",
        "tasks",
        "check",
        source,
        "--target",
        "cpu",
        "--sandbox",
        "bubblewrap",
        "--json",
    ]
    done = subprocess.run([*argv, *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def report(title: str, found: dict[str, Any], *, shown: Sequence[str]) -> int:
    counts = Counter(one["status"] for one in found["tasks"])
    print(f"{title}: {', '.join(f'{number} {status}' for status, number in sorted(counts.items()))}")
    for one in found["tasks"]:
        if one["status"] in shown:
            reasons = "; ".join(f"{reason['code']}: {reason['detail'][:110]}" for reason in one["report"]["reasons"])
            sizes = f" | admitted with {one['rescaled']['sizes']}" if "rescaled" in one else ""
            remarks = "".join(f" | {remark[:160]}" for remark in one["remarks"])
            print(f"  {one['status']:9} {one['task']}: {reasons}{sizes}{remarks}")
    return counts["refused"] + counts["error"]


if __name__ == "__main__":
    sys.exit(main())
