"""Modules that use what the tasks of benchmarks/ do not: shapes, types and operators at their edges."""

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn


class Calls(nn.Module):
    """A module that is one function of its inputs and parts."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        parts = [getattr(self, name) for name in (*self._modules, *self._parameters)]
        return self.function(*inputs, *parts)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def halves(x: torch.Tensor, y: torch.Tensor, layer: nn.Module) -> list[torch.Tensor]:
    return [
        layer(x), F.silu(x) * y, x.softmax(-1), y.amax(0), x.float().mean(-1), (y + x.flip(1)).half(),
        F.gelu(y.transpose(0, 1)), (x.float() * 3).bfloat16(),
    ]  # fmt: skip


def long_rows(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [x.sum(), x.softmax(-1), (x * y).mean(0), F.mse_loss(x, x * y), x.norm(dim=1), x.amin()]


def too_long(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.softmax(-1), x.std(-1)]


def outer(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [x.mean(0), x.softmax(0), x.var(0) + y, (x * y).amax(0), x.logsumexp(0), F.layer_norm(x.t(), (x.shape[0],))]


def products(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, first: nn.Module, last: nn.Module) -> list[Any]:
    return [
        F.gelu(first(x)), last(torch.relu(first(x))), torch.softmax(x @ x.transpose(1, 2), -1) @ x, x @ y, y @ y,
        x @ z + 1, z.t() @ z,
    ]  # fmt: skip


def half_products(x: torch.Tensor, y: torch.Tensor, first: nn.Module) -> list[Any]:
    return [F.gelu(first(x)), x @ x.transpose(1, 2), torch.softmax(x @ x.transpose(1, 2), -1), (x @ y).relu()]


def turned(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [x.transpose(1, 2) * 2 + y, (x.permute(2, 0, 1).contiguous() + 1).relu(), x.mT.reshape(-1) * 3]


def gathered(
    x: torch.Tensor, tokens: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor, table: nn.Module
) -> list[Any]:
    y = table(tokens) + x[:, ::2, 6:]
    return [y * 2, (y > 0) & mask, x.gather(1, rows[:, :, None].expand(3, 4, 6)) + 1, F.rms_norm(y, (6,))]


def ones(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
    return [
        x + y,
        F.layer_norm(x, (1,)),
        (x * y).sum((0, 2)),
        y.softmax(1),
        z * 2,
        z.exp() + x[0, 0, 0],
        (x - y).prod(),
    ]


def small_rows(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.softmax(-1), x[:, :3].sum(-1), F.normalize(x, dim=1), x.reshape(-1, 8).amax(1), x.prod(1)]


SMALL: Final = randn(5, 37).bfloat16()
INDEX: Final = torch.arange(12).reshape(3, 4)
CASES: Final[dict[str, tuple[nn.Module, list[Any]]]] = {
    "halves": (Calls(halves, layer=nn.LayerNorm(72).half()), [randn(9, 72).half(), randn(9, 72).half()]),
    "odd bfloat16": (Calls(halves, layer=nn.LayerNorm(37).bfloat16()), [SMALL, SMALL + 1]),
    "few long rows": (Calls(long_rows), [randn(3, 20_001), randn(1, 20_001)]),
    "few long even rows": (Calls(long_rows), [randn(2, 20_480), randn(1, 20_480)]),
    "rows beyond registers": (Calls(too_long), [randn(64, 37_000)]),
    "outer axes": (Calls(outer), [randn(700, 9), randn(1, 9)]),
    "wide outer axes": (Calls(outer), [randn(70, 136), randn(1, 136)]),
    "products": (
        Calls(products, first=nn.Linear(40, 65), last=nn.Linear(65, 3)), [randn(2, 19, 40), randn(40), randn(40, 7)],
    ),
    "half products": (
        Calls(half_products, first=nn.Linear(40, 24).half()), [randn(2, 16, 40).half(), randn(40, 8).half()],
    ),
    "transposes": (Calls(turned), [randn(3, 45, 70), randn(45)]),
    "gathers": (
        Calls(gathered, table=nn.Embedding(11, 6)),
        [randn(3, 8, 12), INDEX % 11, INDEX % 8, torch.arange(72).reshape(3, 4, 6) % 3 == 0],
    ),
    "sizes of one": (Calls(ones), [randn(3, 4, 1), randn(1, 4, 5), randn()]),
    "short rows": (Calls(small_rows), [randn(50, 24)]),
}  # fmt: skip
