"""New values for a reference's parameters and buffers, so that nothing can be computed from the old ones ahead of time.

A redraw constructs the module under another seed. What is still constant then (ones, zeros) is perturbed, because a
kernel could leave it out unnoticed; buffers that are no statistics (masks, tables) keep their values, because their
meaning is in them.
"""

from typing import Any, Final

import torch

STATISTICS: Final = ("running_mean", "running_var")


def perturb(model: torch.nn.Module, *, seed: int, fresh_names: set[str]) -> None:
    """Change in place every parameter or statistic that a new seed alone left as it was (`fresh_names` has changed
    already).
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    for name, value in model.state_dict().items():
        statistic = name.rpartition(".")[2] in STATISTICS
        if not value.is_floating_point() or not value.numel() or name in fresh_names:
            continue
        if name in parameters or statistic:
            value.copy_(_perturbed(value, generator))


def _perturbed(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    factor = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device) + 0.5
    shift = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.device) * 0.25
    old = value.double()
    return torch.where(old == 0, shift, old * factor).to(value.dtype)


def changed_names(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Names whose tensors differ. A tensor that is constant in both counts as unchanged."""
    return {
        name
        for name, value in after.items()
        if name in before
        and isinstance(value, torch.Tensor)
        and value.shape == before[name].shape
        and not torch.equal(value, before[name])
        and value.numel()
        and not bool((value == value.flatten()[0]).all())
    }
