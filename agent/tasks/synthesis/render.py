"""The text of a model.py from a sized composition."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.tasks.synthesis import shapes
from agent.tasks.synthesis.compose import Composition, Node
from agent.tasks.synthesis.shapes import Shape
from agent.tasks.synthesis.sizing import Sized

ROLES: Final = {"c": "channels", "d": "features", "wide": "hidden_features"}
INPUTS: Final = ("x", "y", "z")
DRAWN: Final = {"any": "torch.randn({})", "positive": "torch.rand({}) * 2 + 0.1", "unit": "torch.rand({}) * 0.9 + 0.05"}


@dataclass
class _Class:
    """What the text of the class is put together from."""

    sizes: dict[str, int] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    imports: list[str] = field(default_factory=list)

    def size(self, role: str, value: int, *, channels: bool) -> str:
        """The constructor's argument for a size; equal sizes share one."""
        found = next((name for name, known in self.sizes.items() if known == value), None)
        if found is not None:
            return found
        base = ROLES.get(role, "out_channels" if channels else "out_features")
        name, number = base, 2
        while name in self.sizes:
            name, number = f"{base}_{number}", number + 1
        self.sizes[name] = value
        return name

    def member(self, base: str) -> str:
        name, number = base, 2
        while name in self.names:
            name, number = f"{base}_{number}", number + 1
        self.names.add(name)
        return f"self.{name}"


def render(sized: Sized) -> str:
    """A module in the KernelBench form: class Model, sizes as constants, get_inputs, get_init_inputs."""
    made, values = _Class(), sized.values
    body = _forward(sized.composition, values, made)
    inputs = _inputs(sized.composition, values)
    arguments = "".join(f", {name}: int" for name in made.sizes)
    constants = "".join(f"{name} = {value}\n" for name, value in made.sizes.items())
    forward = ", ".join(f"{name}: torch.Tensor" for name, _ in inputs)
    drawn = ", ".join(text for _, text in inputs)
    functional = "import torch.nn.functional as F\n" if re.search(r"\bF\.", body) else ""
    imports = "".join(f"{line}\n" for line in made.imports)
    parts = [
        f"import torch\nfrom torch import nn\n{functional}{imports}\n\n",
        "class Model(nn.Module):\n",
        f"    def __init__(self{arguments}) -> None:\n        super().__init__()\n",
        "".join(f"        {line}\n" for line in made.members),
        f"\n    def forward(self, {forward}) -> torch.Tensor:\n{body}\n\n",
        f"batch_size = {sized.batch}\n{constants}\n\n",
        f"def get_inputs():\n    return [{drawn}]\n\n\n",
        f"def get_init_inputs():\n    return [{', '.join(made.sizes)}]\n",
    ]
    return "".join(parts)


def _inputs(composition: Composition, values: Sequence[Shape]) -> list[tuple[str, str]]:
    """Name and expression of each input; all but the first are made of the shape of some value."""
    first = values[0]
    shown = [(INPUTS[0], DRAWN[composition.domain].format(_dims(first)))]
    for name, number in zip(INPUTS[1:], composition.extra_inputs, strict=False):
        shown.append((name, DRAWN["any"].format(_dims(values[number]))))
    return shown


def _dims(shape: Shape) -> str:
    return ", ".join(["batch_size", *map(str, shape[1:])])


def _forward(composition: Composition, values: Sequence[Shape], made: _Class) -> str:
    names = {0: INPUTS[0]}
    used = {node.first for node in composition.nodes[1:]} | {
        node.second[1] for node in composition.nodes if node.second and node.second[0] == "value"
    }
    lines: list[str] = []
    for number, node in enumerate(composition.nodes):
        call = _call(node, composition, values, names, made)
        last = number == len(composition.nodes) - 1
        again = any(_takes(later, number + 1) for later in composition.nodes[number + 2 :])
        names[number + 1] = f"kept_{number + 1}" if again and number + 1 in used else "out"
        lines.append(f"        return {call}" if last else f"        {names[number + 1]} = {call}")
    return "\n".join(lines) + "\n"


def _takes(node: Node, value: int) -> bool:
    return node.first == value or node.second == ("value", value)


def _call(node: Node, composition: Composition, values: Sequence[Shape], names: dict[int, str], made: _Class) -> str:
    operator, shape = node.operator, values[node.first]
    channels = "c" in operator.sizes or len(shape) > 3
    known: dict[str, object] = dict(node.picks)
    roles = {name for name, value in operator.picks.items() if value == "features"} | set(operator.sizes)
    literal = shapes.sizes(operator, shape) | {name: node.picks[name] for name in roles if name in node.picks}
    for name in sorted(roles):
        known[name] = made.size(name, int(literal[name]), channels=channels)
    member = ""
    if operator.create:
        member = made.member(operator.base)
        made.members.append(f"{member} = {operator.create.format(**known)}")
    made.imports += [line for line in operator.imports if line not in made.imports]
    parameter = ""
    if operator.weight:
        parameter = made.member("weight")
        scale = f" / {math.sqrt(float(literal[operator.weight[0]])):.4g}"
        made.members.append(
            f"{parameter} = nn.Parameter(torch.randn({', '.join(str(known[n]) for n in operator.weight)}){scale})"
        )
    second = _second(node, composition, values, names, made, channels=channels)
    return operator.call.format(self=member, x=names[node.first], y=second, w=parameter, **known)


def _second(
    node: Node,
    composition: Composition,
    values: Sequence[Shape],
    names: dict[int, str],
    made: _Class,
    *,
    channels: bool,
) -> str:
    if node.second is None:
        return ""
    kind, number = node.second
    if kind == "value":
        return names[number]
    if kind == "input":
        return INPUTS[1 + composition.extra_inputs.index(number)]
    shape = values[number]
    member = made.member("weight")
    if len(shape) > 3:
        size = made.size("c", shape[1], channels=True)
        dims = ", ".join([size, *["1"] * (len(shape) - 2)])
    else:
        dims = made.size("d", shape[-1], channels=False)
    made.members.append(f"{member} = nn.Parameter(torch.randn({dims}))")
    return member
