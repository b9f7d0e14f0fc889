"""Whether integers that may differ, because rounding decides them, differ as rounding makes them differ.

A share of the whole says neither where nor how far. Where: in no stretch of neighbours more than FACTOR times the
reference's own share, of the whole or of the stretch, plus six standard deviations. How far: at most FACTOR times as
many by FACTOR times the distance, for every distance. A wrong index may be any number, and then the second says
nothing; a value that rounding has moved is near the right one. Half of what noisy inputs make differ counts like the
reference's own: what sorts its inputs makes no error, and equal ones may stand in any order.
"""

from typing import Final

import torch

from referee.numerics import NOISE

FACTOR: Final = 8.0
DEVIATIONS: Final = 6.0
SPARE: Final = 32.0  # elements: what is rare in the reference may have been missing there by chance
SPARE_ONE_IN: Final = 8  # of outputs of few elements, of which that would be half
STRETCH: Final = 256
STRETCHES: Final = 0.002  # that may be off
FURTHEST: Final = 40  # powers of two


def unlike_rounding(
    output: torch.Tensor,
    *,
    truth: torch.Tensor,
    reference: torch.Tensor,
    noisy: torch.Tensor | None = None,
    share: float = 0.0,
) -> str:
    """What is wrong, empty where nothing is. Shapes are equal; `noisy` is the output of noisy inputs, `share` what is
    known of other inputs.
    """
    exact = truth.to(reference.dtype)
    wrong = ((output != reference) & (output != exact)).flatten()
    if not bool(wrong.any()):
        return ""
    own = (reference != exact).flatten()
    moved = torch.zeros_like(own) if noisy is None else (noisy != exact).flatten()
    return _gathered(wrong, own, moved, share) or _far(
        _distances(output, exact, wrong),
        _distances(reference, exact, own),
        _distances(exact if noisy is None else noisy, exact, moved),
        spare=min(SPARE, output.numel() / SPARE_ONE_IN),
    )


def _gathered(wrong: torch.Tensor, own: torch.Tensor, moved: torch.Tensor, share: float) -> str:
    whole = wrong.numel() // STRETCH * STRETCH
    if not whole:
        return ""
    ours, theirs, noise = (part[:whole].view(-1, STRETCH).sum(dim=1).double() for part in (wrong, own, moved))
    expected = torch.clamp(torch.maximum(theirs, NOISE * noise), min=max(float(own.double().mean()), share) * STRETCH)
    expected = FACTOR * expected
    bad = float((ours > expected + DEVIATIONS * expected.sqrt() + 1).double().mean())
    if bad <= STRETCHES:
        return ""
    return f"{bad:.1%} of all stretches of {STRETCH} integers have more wrong ones than rounding makes"


def _far(ours: torch.Tensor, theirs: torch.Tensor, noise: torch.Tensor, *, spare: float) -> str:
    for power in range(FURTHEST):
        near = 2.0**power
        expected = FACTOR * max(float((theirs >= near).sum()), NOISE * float((noise >= near).sum()))
        found = float((ours >= FACTOR * near).sum())
        if found > expected + DEVIATIONS * expected**0.5 + spare:
            return f"{int(found)} integers are off by {FACTOR * near:.0f} or more, further than rounding moves them"
    return ""


def _distances(one: torch.Tensor, other: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    return (one.flatten()[chosen].double() - other.flatten()[chosen].double()).abs_()
