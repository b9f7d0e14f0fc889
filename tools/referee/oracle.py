"""The reference worker's side of the truth: inputs under a seed, weights, and outputs in several precisions. Trusted
code only.
"""

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from referee import arena, loading, protocol, tree, weights
from referee.numerics import DOUBLES, HALVES

WIDER: Final = {
    torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}  # fmt: skip
NO_MEMORY: Final = ("can't allocate memory", "CUDA out of memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
REPLACED: Final = 8  # one row of so many
SMALL: Final = 1e-3  # RMS of weights that a branch may be left out for
ROWS: Final = ("rows_left_out", "other_rows_left_out")
WITHIN: Final = ("float64", "noise", "previous_weights", "again", "branch_left_out", *ROWS)  # those that may fail
MANTISSA_BITS: Final = {torch.float32: 23}
ROUGH_BYTES: Final = 1 << 27
LOUDER: Final = 8  # half units in the last place, where honest kernels err more than the reference
Reply = tuple[protocol.Message, bytes, tuple[int, ...]]
Pack = Callable[[list[torch.Tensor]], tuple[protocol.Message, tuple[int, ...]]]


class Oracle:
    """The task's module in this process, its current and previous weights, and the inputs of the current batch."""

    def __init__(
        self,
        text: str,
        *,
        seed: int,
        device: str = "cpu",
        pack: Pack = arena.pack_for_referee,
    ) -> None:
        self.task = loading.load_task(text, device=device)
        self.pack = pack
        self.seed = seed
        self.init = _guarded("get_init_inputs", lambda: self.task.init_inputs(seed=seed))
        self.model: torch.nn.Module = _guarded("Model(*get_init_inputs())", lambda: self.task.build(seed=seed))
        self.previous: torch.nn.Module | None = None
        self.wide: torch.nn.Module | None = None
        self.rough: dict[str, torch.nn.Module] = {}
        self.items: list[tuple[tree.Spec, list[torch.Tensor]]] = []
        self.handlers: dict[str, Callable[[protocol.Received], Reply]] = {
            "inputs": self.inputs,
            "weights": self.weights,
            "expected": self.expected,
            "adopted": self.adopted,
        }

    def summary(self) -> protocol.Message:
        try:
            init, leaves = tree.flatten(self.init)
        except tree.Unsupported as error:
            raise loading.LoadError("task.bad_init_inputs", f"get_init_inputs() returns {error}") from error
        blob = b"".join(bytes(arena.raw_bytes(leaf.detach()).tolist()) for leaf in leaves)
        parameters = {name for name, _ in self.model.named_parameters()}
        return {
            "ok": True,
            "init": init,
            "init_hex": blob.hex(),
            "state": loading.describe_state(self.model),
            "on_device": self.task.places.get("Model", False),
            "parameters": sorted(parameters),
        }

    def inputs(self, request: protocol.Received) -> Reply:
        """One item for each seed; floats with both signs are multiplied by `scale`."""
        self.items = []
        for seed in request.fields["seeds"]:
            values = _guarded("get_inputs", functools.partial(self.task.inputs, seed=seed))
            try:
                spec, leaves = tree.flatten(values)
            except tree.Unsupported as error:
                raise loading.LoadError("task.bad_inputs", f"get_inputs() returns {error}") from error
            self.items.append((spec, [_scaled(leaf.detach(), request.fields["scale"]) for leaf in leaves]))
        packed, descriptors = self.pack([leaf for _, leaves in self.items for leaf in leaves])
        specs = [spec for spec, _ in self.items]
        if all(spec == specs[0] for spec in specs):
            specs = specs[:1]
        return {"ok": True, "specs": specs, "count": len(self.items), **packed}, b"", descriptors

    def weights(self, request: protocol.Received) -> Reply:
        """The next weights: `initial`, or redrawn and perturbed; the state_dict goes back."""
        if request.fields["mode"] == "redraw":
            self.previous = copy.deepcopy(self.model)
            self._redraw(int(request.fields["seed"]))
        self.wide, self.rough = None, {}
        state = self.model.state_dict()
        values = [value.contiguous() for value in state.values()]
        packed, descriptors = self.pack(values)
        return {"ok": True, "state": loading.describe_state(self.model), **packed}, b"", descriptors

    def adopted(self, request: protocol.Received) -> Reply:
        """Weights that the referee made itself have been loaded."""
        self.wide, self.rough = None, {}
        return {"ok": True}, b"", ()

    def _redraw(self, seed: int) -> None:
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        drawn = self.task.build(seed=seed).state_dict()
        fresh = weights.changed_names(before, drawn)
        self.model.load_state_dict({name: drawn[name] for name in before}, strict=True)
        weights.perturb(self.model, seed=seed, fresh_names=fresh)
        if not self._finite():
            self.model.load_state_dict(drawn)
        if not self._finite():
            self.model.load_state_dict(before)

    def _finite(self) -> bool:
        outputs = self.model(*self.task.inputs(seed=self.seed))
        return all(bool(torch.isfinite(leaf).all()) for leaf in tree.leaves_of(outputs) if leaf.is_floating_point())

    def expected(self, request: protocol.Received) -> Reply:
        """Outputs of the items asked for, one list of specs for each variant; a variant that cannot be computed is
        null.
        """
        if request.fields.get("fresh"):
            self.rough = {}
        found: dict[str, list[tree.Spec | None]] = {}
        notes: list[protocol.Message] = []
        tensors: list[torch.Tensor] = []
        for variant in request.fields["variants"]:
            found[variant] = []
            for index in request.fields["items"]:
                spec, leaves, note = self._variant(variant, index)
                found[variant].append(spec)
                tensors += leaves
                if variant == "float32":
                    notes.append(note)
        packed, descriptors = self.pack(tensors)
        return {"ok": True, "found": found, "notes": notes, **packed}, b"", descriptors

    def _variant(self, variant: str, index: int) -> tuple[tree.Spec | None, list[torch.Tensor], protocol.Message]:
        if variant in WITHIN or variant.startswith(("bits", "noise")):
            try:
                return (*self._outputs(variant, index), {})
            except Exception:
                return None, [], {}
        spec, before = self.items[index]
        inputs = _copies(before)
        outputs = _guarded("Model.forward", lambda: self.model(*tree.unflatten(spec, iter(inputs))))
        note = {
            "modified": [not _same(old, new) for old, new in zip(before, inputs, strict=True)],
            "aliases": _shares(tree.leaves_of(outputs), inputs),
            "double_inputs": any(leaf.dtype in DOUBLES for leaf in before),
        }
        return (*_detached(outputs), note)

    def _outputs(self, variant: str, index: int) -> tuple[tree.Spec, list[torch.Tensor]]:
        spec, leaves = self.items[index]
        model: torch.nn.Module | None = self.model
        if variant == "float64":
            if self.wide is None:
                self.wide = _converted(self.model, _widened)
            model, inputs = self.wide, [_widened(leaf) for leaf in _copies(leaves)]
        elif variant.startswith("noise"):
            most = LOUDER if variant.startswith("noise_loud") else 1
            model = self.model if variant == "noise" else self._rough(variant, most)
            inputs = [_noisy(leaf, most) for leaf in _copies(leaves)]
        elif variant == "again":
            inputs = _copies(leaves)
        elif variant in ROWS:
            inputs = _replaced(_copies(leaves))
        elif variant == "branch_left_out":
            model, inputs = _without_small(self.model), _copies(leaves)
        elif variant == "previous_weights":
            model, inputs = self.previous, _copies(leaves)
        else:
            bits = int(variant.removeprefix("bits"))
            model = _converted(self.model, lambda value: _rounded(value, bits))
            inputs = [_rounded(leaf, bits) for leaf in _copies(leaves)]
        if model is None:
            raise ValueError(variant)
        return _detached(model(*tree.unflatten(spec, iter(inputs))))

    def _rough(self, name: str, most: int) -> torch.nn.Module:
        """The model with noise in its weights, the same for all items until the weights change; one for all loud ones
        where weights are so large that copies would fill the memory.
        """
        if most > 1 and sum(value.nbytes for value in self.model.state_dict().values()) > ROUGH_BYTES:
            name = "loud"
        if name not in self.rough:
            self.rough[name] = _converted(self.model, functools.partial(_noisy, most=most))
        return self.rough[name]


def _guarded(what: str, call: Callable[[], Any]) -> Any:
    """The task's own code; what it raises makes the task unusable."""
    try:
        return call()
    except MemoryError as error:
        raise loading.LoadError("task.out_of_memory", f"{what}: out of memory") from error
    except Exception as error:
        code = "task.out_of_memory" if any(text in str(error) for text in NO_MEMORY) else "task.raises"
        raise loading.LoadError(code, f"{what}: {type(error).__name__}: {error}") from error


def _detached(outputs: Any) -> tuple[tree.Spec, list[torch.Tensor]]:
    try:
        spec, leaves = tree.flatten(outputs)
        values = [tree.resolved(leaf.detach()).contiguous() for leaf in leaves]
        return tree.flatten(tree.unflatten(spec, iter(values)))[0], values
    except tree.Unsupported as error:
        raise loading.LoadError("task.outputs", f"forward returns {error}") from error


def _scaled(leaf: torch.Tensor, scale: float) -> torch.Tensor:
    if scale == 1.0 or not leaf.is_floating_point() or not leaf.numel() or not bool((leaf < 0).any()):
        return leaf
    if bool((leaf == leaf.round()).all()):  # whole numbers are labels, signs or masks
        return leaf
    return leaf.mul_(scale) if tree.layout_of(leaf)["bytes"] == leaf.numel() * leaf.element_size() else leaf


def _copies(leaves: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Copies with the same strides."""
    return [tree.view_as(arena.raw_bytes(leaf).clone(), tree.layout_of(leaf)) for leaf in leaves]


def _same(old: torch.Tensor, new: torch.Tensor) -> bool:
    return bool(torch.equal(arena.raw_bytes(old), arena.raw_bytes(new)))


def _shares(outputs: Iterable[torch.Tensor], inputs: list[torch.Tensor]) -> bool:
    taken = {leaf.untyped_storage().data_ptr() for leaf in inputs}
    return any(leaf.untyped_storage().data_ptr() in taken for leaf in outputs)


def _converted(model: torch.nn.Module, convert: Callable[[torch.Tensor], torch.Tensor]) -> torch.nn.Module:
    return copy.deepcopy(model)._apply(convert)


def _widened(value: torch.Tensor) -> torch.Tensor:
    return value.to(WIDER[value.dtype]) if value.dtype in WIDER else value


def _noisy(value: torch.Tensor, most: int = 1) -> torch.Tensor:
    """Half a unit in the last place up or down, `most` of them at most: what rounding of the inputs alone would do.
    Half precision is so coarse that one is much.
    """
    if not value.is_floating_point():
        return value
    epsilon = torch.finfo(value.dtype).eps / 2
    most = 1 if value.dtype in HALVES else most
    steps = torch.randint(-most, most + 1, value.shape, device=value.device)
    return (value + value * (epsilon * steps)).to(value.dtype)  # 1 + epsilon would be rounded to 1


def _replaced(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Inputs in which others take the place of a random eighth of the rows along the longest dimension; the same ones
    in inputs of the same length, which belong together.
    """
    places: dict[int, torch.Tensor] = {}
    for leaf in leaves:
        dim = max(range(leaf.dim()), key=lambda at: leaf.shape[at], default=0)
        length = leaf.shape[dim] if leaf.dim() else 0
        if length >= REPLACED:
            if length not in places:
                order, gone = torch.randperm(length), length // REPLACED
                places[length] = torch.arange(length)
                places[length][order[:gone]] = order[gone : 2 * gone]
            leaf.copy_(leaf.index_select(dim, places[length].to(leaf.device)))
    return leaves


def _without_small(model: torch.nn.Module) -> torch.nn.Module | None:
    """Weights as small as those that scale a branch at the start of a training (1e-6) are zero; None without such."""
    small = [name for name, value in model.named_parameters() if 0 < _rms(value) < SMALL]
    if not small:
        return None
    found = copy.deepcopy(model)
    with torch.no_grad():
        for name in small:
            found.get_parameter(name).zero_()
    return found


def _rms(value: torch.Tensor) -> float:
    return float(value.detach().abs().double().square().mean().sqrt()) if value.is_floating_point() else 0.0


def _rounded(value: torch.Tensor, bits: int) -> torch.Tensor:
    """float32 with its mantissa rounded to `bits` bits (10: TF32 and fp16, 7: bf16)."""
    if value.dtype not in MANTISSA_BITS:
        return value
    drop = MANTISSA_BITS[value.dtype] - bits
    whole = value.contiguous().view(torch.int32)
    kept = (whole + (1 << (drop - 1))) & ~((1 << drop) - 1)
    return torch.where(torch.isfinite(value), kept.view(torch.float32), value)
