"""How far an output is from the truth, and how far it may be.

Metric, element by element: e = |out - truth| / (|truth| + RMS of its row + RMS of the whole / 100), with the truth
from float64 where the task can be computed so; outputs of few elements have sizes of their own (sizes.py). Accepted are
outputs whose largest and whose RMS error are within K times the error that the reference itself makes in the declared
precision, or within a few units in the last place. The K between: a plain sequential fp32 sum has 3 to 5 times the
error of torch's own, the bf16 matrix flag about 580 times, a bf16 cast about 4,000 times (measured on matrix products).
Integers, bools, NaN and infinities are compared exactly; where fp64 and fp32 references disagree on one, both are
right, and only where they or noisy inputs disagree may a small share of the integers (ties broken by rounding) differ.

Where the next lower precision would pass for K times, as in long running sums whose reference is rough itself, the RMS
error that is allowed shrinks until it does not; never below HONEST times the reference's own, which another order of
summation makes. A lower precision that is better than that has lost nothing: the mean of millions of rounded values is
as exact as the mean of the values, and a half-precision output hides it. Then the two cannot be told apart, by anybody.

The allowed error shrinks likewise for outputs of which something was left out (see `controls`): the rows of a sum over
millions of them, a branch whose weights are tiny. It ends where honest orders of summation end (SPARED_ULP, PARTS).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from referee import integers, sizes
from referee.sizes import FEW, are_values, wide

FACTOR: Final = {"full": 32.0, "half": 8.0}
FLIPS: Final = 8.0  # times as many as rounding moves integers
HONEST: Final = 0.25  # of K: eight times the reference's own error where sequential sums have three to five
DECLARED: Final = 0.125  # likewise where a lower precision is allowed, whose rounding outweighs the order of summation
APART: Final = 1.25  # the lower precision's error over what is allowed, where the two are told apart
NOISE: Final = 0.5  # of those that noisy inputs make differ; what sorts or converts inputs makes no error of its own
BY_CHANCE: Final = 32.0  # elements that may be missing in the reference's own by chance
FLOOR_MAX_ULP: Final = {"full": 64.0, "half": 4.0, "double": 4096.0}
FLOOR_RMS_ULP: Final = {"full": 16.0, "half": 2.0, "double": 1024.0}
OVERFLOWED: Final = 2.0**-6  # relative error of a finite value where the reference has overflowed on its way
BLOCK: Final = 1 << 15
DEVICE_BLOCK: Final = 1 << 25
SUMMED_ULP: Final = 0.125
"""Times the root of the number of terms. Measured in this metric for means of 2**24 squares: 64 partial sums 0.05 to
0.06, 16 of them 0.35 (of 2**20 terms: 0.03), the mean of one half of the terms 0.18 RMS, torch's own sum 0.0001. Terms
of both signs: at most 0.12 in whatever order, with half of them left out 800. So long sums of one sign need blocks, or
double precision.
"""
LONGEST: Final = 1 << 25
"""Input elements of a sum beyond which less is allowed again, like the error of an estimate from one half of them: that
is 0.18 RMS in the unit above at half as many terms, and falls with the root of their number.
"""
PARTS: Final = 2.0**-15
"""Times the number of input elements, in units of the last place: what plain partial sums of one sign need. For means
of 2**22 squares (2**23 inputs) 8 of them are off by 520, 16 by 180, 32 by 64, torch's own sum by 0.2, of values near
one 8 of them by 7. Where an output that leaves something out is nearer than that, NEARER times its error stay allowed.
"""
NEARER: Final = 1.5
SPARED_ULP: Final = {"full": 2.0, "half": 0.25, "double": 1024.0}  # likewise, RMS, for outputs that are no long sums
HALVES: Final = (torch.float16, torch.bfloat16)
DOUBLES: Final = (torch.float64, torch.complex128)


@dataclass(frozen=True)
class Error:
    """Largest and RMS relative error of one tensor; infinite where a mask or an exact value differs."""

    largest: float
    rms: float
    detail: str = ""


@dataclass
class Tolerance:
    """What is allowed for one output tensor: grows with the reference's own error as it is seen on more inputs."""

    dtype: torch.dtype
    numel: int
    reference: Error = field(default_factory=lambda: Error(0.0, 0.0))
    noise: float = 0.0  # share of integers that differ where inputs have noise
    scale: float = 0.0  # outputs of few elements only: RMS over several inputs, because one of them may be near zero
    reach: float = 0.0  # likewise: number of input elements that one output element sums up
    ceiling: float = 0.0  # RMS error of the next lower precision, as far as it is known
    honest: float = HONEST
    left_out: dict[str, float] = field(default_factory=dict)  # RMS error of outputs that leave something out, by name
    lenient: float = 1.0  # above one where the reference's own error is too small a measure for parts of the output
    slack: float = 1.0  # above one where the comparison is with the reference itself instead of the truth

    def learn(self, error: Error) -> None:
        """Take in the reference's own error; infinite errors (its masks differ from fp64's) say nothing about
        rounding.
        """
        if error.largest != float("inf"):
            self.reference = Error(max(self.reference.largest, error.largest), max(self.reference.rms, error.rms))

    def shake(self, share: float) -> None:
        """Take in the share of integers that noisy inputs make differ."""
        self.noise = max(self.noise, share)

    def see(self, truth: torch.Tensor, *, inputs: int) -> None:
        """Outputs of few elements are sums over many inputs, with an error of their own that chance may hide."""
        if self._is_few:
            self.scale = max(self.scale, float(truth.to(torch.complex128).abs().square().mean().sqrt()))
            self.reach = inputs / self.numel

    def forbid(self, error: Error, *, honest: float) -> None:
        """Take in what the next lower precision gets wrong, which must not be allowed."""
        self.honest = honest
        if error.rms != float("inf"):
            self.ceiling = max(self.ceiling, error.rms)

    def miss(self, name: str, error: Error) -> None:
        """Take in what is wrong where something was left out; an infinite error is never allowed anyway."""
        if error.rms != float("inf"):
            self.left_out[name] = max(self.left_out.get(name, 0.0), error.rms)

    def sizes(self, truth: torch.Tensor, rounded: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """What errors are related to, element by element; None for outputs of many elements."""
        if not self._is_few:
            return None
        tiny = float(torch.finfo(self.dtype).tiny) * 1e3  # below it kernels flush to zero
        return sizes.of_few(truth, rounded=rounded, whole=self.scale, epsilon=self._epsilon(), tiny=tiny)

    def astray(self, output: torch.Tensor, truth: torch.Tensor, draws: Sequence[torch.Tensor]) -> str:
        """What is wrong with integers of few, empty where nothing is; `draws` are what rounding makes of this call."""
        wrong = integers.astray(output, truth, draws)
        if not wrong.numel():
            return ""
        return (
            f"{wrong.numel()} of {output.numel()} {_name(self.dtype)} elements are wrong, by {float(wrong.max()):.17g}"
        )

    @property
    def flips(self) -> float:
        """Share of integers that rounding makes differ."""
        by_chance = BY_CHANCE / max(self.numel, 1)
        return max(self.reference.rms, min(self.noise, max(NOISE * self.noise, by_chance)))

    @property
    def counts_few(self) -> bool:
        """Whether its elements are few integers."""
        return 0 < self.numel < FEW and not self._is_value

    @property
    def _is_few(self) -> bool:
        return 0 < self.numel < FEW and self._is_value

    @property
    def _is_value(self) -> bool:
        return are_values(self.dtype)

    @property
    def tells_apart(self) -> bool:
        """Whether the next lower precision is worse than what an honest kernel may be."""
        honest = max(self.honest * self._factor() * self.reference.rms, self._floor(FLOOR_RMS_ULP))
        return self.ceiling > APART * honest

    @property
    def largest(self) -> float:
        own = self.reference.largest if self._is_value else self.flips
        return self.slack * max(self._factor() * own, self._floor(FLOOR_MAX_ULP))

    @property
    def rms(self) -> float:
        own = self.reference.rms if self._is_value else self.flips
        usual, least = max(self._factor() * own, self._floor(FLOOR_RMS_ULP)), self._least()
        summed = PARTS * min(self.reach, LONGEST**2 / max(self.reach, 1.0)) * self._epsilon()
        limits = [
            max(error / APART, min(summed, NEARER * error), least) for error in self.left_out.values() if error > least
        ]
        if self.dtype in HALVES and any(error <= least for error in self.left_out.values()):
            limits.append(least)  # one eighth of the rows is lost in its rounding, more of them need not be
        if self.tells_apart:
            limits.append(self.ceiling / APART)
        return self.slack * min(usual, *limits) if limits else self.slack * usual

    def allows(self, error: Error) -> bool:
        return error.largest <= self.largest and error.rms <= self.rms

    def _floor(self, ulp: dict[str, float]) -> float:
        summed = SUMMED_ULP * math.sqrt(self.reach)
        if self.reach > LONGEST:
            summed *= LONGEST / self.reach
        return max(ulp[self._kind()], summed) * self._epsilon()

    def _least(self) -> float:
        """What stays allowed whatever is left out."""
        ulp = FLOOR_RMS_ULP if self.numel < FEW else SPARED_ULP
        return max(HONEST * self._factor() * self.reference.rms, ulp[self._kind()] * self._epsilon())

    def _kind(self) -> str:
        return "half" if self.dtype in HALVES else "double" if self.dtype in DOUBLES else "full"

    def _factor(self) -> float:
        if not self._is_value:
            return FLIPS
        factor = FACTOR["half" if self.dtype in HALVES else "full"]
        return factor * 4 if self.numel < FEW else factor

    def _epsilon(self) -> float:
        return float(torch.finfo(self.dtype).eps) if self._is_value else 0.0


def measure(
    output: torch.Tensor, *, truth: torch.Tensor, reference: torch.Tensor, sizes: torch.Tensor | None = None
) -> Error:
    """Error of `output`; `reference` (the declared precision) decides with `truth` which exact values are right.

    Shapes must be equal already. `sizes` are what differences are related to, where it is not the usual.
    """
    if not truth.numel():
        return Error(0.0, 0.0)
    if not are_values(output.dtype):
        return _exact(output, truth, reference)
    masks = None if _finite(output, truth, reference) else _masks(output, truth, reference)
    if isinstance(masks, Error):
        return masks
    return _rounding(output, truth, masks) if sizes is None else _related(output, truth, masks, sizes)


def _related(output: torch.Tensor, truth: torch.Tensor, left_out: torch.Tensor | None, sizes: torch.Tensor) -> Error:
    difference = (wide(output) - wide(truth)).abs()
    if left_out is not None:
        difference = difference.masked_fill(left_out, 0)
    relative = (difference / sizes).nan_to_num_(nan=0.0)
    return Error(float(relative.max()), float(relative.square().mean().sqrt()))


def _rounding(output: torch.Tensor, truth: torch.Tensor, left_out: torch.Tensor | None) -> Error:
    """Rows are taken in blocks that fit a core's cache: several times as fast as whole tensors."""
    width = output.shape[-1] if output.dim() > 1 else output.numel()
    got, want = output.reshape(-1, width), truth.reshape(-1, width)
    hidden = None if left_out is None else left_out.reshape(-1, width)
    step = max(1, (BLOCK if output.device.type == "cpu" else DEVICE_BLOCK) // width)
    overall = _rms_of(want, hidden, step)
    largest = total = 0.0
    for start in range(0, got.shape[0], step):
        ours, theirs = wide(got[start : start + step]), wide(want[start : start + step])
        if hidden is not None:
            ours, theirs = (part.masked_fill(hidden[start : start + step], 0) for part in (ours, theirs))
        difference, size = (ours - theirs).abs(), theirs.abs()
        row = size.square().mean(dim=1, keepdim=True).sqrt_()
        relative = difference.div_(size.add_(row).add_(overall / 100)).nan_to_num_(nan=0.0)
        largest = max(largest, float(relative.max()))
        total += float(relative.square_().sum())
    return Error(largest, math.sqrt(total / output.numel()))


def _rms_of(want: torch.Tensor, hidden: torch.Tensor | None, step: int) -> float:
    total = 0.0
    for start in range(0, want.shape[0], step):
        part = wide(want[start : start + step])
        if hidden is not None:
            part = part.masked_fill(hidden[start : start + step], 0)
        total += float(part.abs().square_().sum())
    return math.sqrt(total / want.numel())


def _finite(*tensors: torch.Tensor) -> bool:
    """A quick yes: a sum is finite only where all elements are (it may overflow, then a closer look follows)."""
    return all(bool(torch.isfinite(tensor.sum())) for tensor in tensors)


def _exact(output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor) -> Error:
    truth = truth.to(reference.dtype)
    wrong = (output != reference) & (output != truth)
    if not bool(wrong.any()):
        return Error(0.0, 0.0)
    share = float(wrong.double().mean())
    return Error(share, share, f"{share:.3%} of the {_name(output.dtype)} elements differ")


def _masks(got: torch.Tensor, want: torch.Tensor, other: torch.Tensor) -> Error | torch.Tensor:
    """Where not all three are finite; an error where NaN and infinities lie neither as in the truth nor as in the
    reference.
    """
    classes = [_class(tensor) for tensor in (got, want, other)]
    wrong = (classes[0] != classes[1]) & (classes[0] != classes[2])
    wrong |= _invented(got, want, other)
    if not bool(wrong.any()):
        return ~(torch.isfinite(got) & torch.isfinite(want) & torch.isfinite(other))
    share = float(wrong.double().mean())
    return Error(
        float("inf"), float("inf"), f"NaN or infinities differ from the reference's in {share:.2%} of the elements"
    )


def _invented(got: torch.Tensor, want: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Finite values that are nowhere near the truth where the reference is not finite, or the other way round."""
    alone = torch.isfinite(got) & (torch.isfinite(want) != torch.isfinite(other))
    if not bool(alone.any()):
        return alone
    right = torch.where(torch.isfinite(want), wide(want), wide(other))
    return alone & ~((wide(got) - right).abs() <= OVERFLOWED * right.abs())


def _class(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.isfinite(tensor).to(torch.int8)
    return torch.isnan(tensor).to(torch.int8) + 2 * torch.isposinf(tensor) + 4 * torch.isneginf(tensor)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
