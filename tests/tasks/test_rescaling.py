"""Other sizes for a task in KernelBench's form: only whole numbers of the module change, and divisors survive."""

import ast

from agent.tasks.admission.rescale import grown, shrunk

TASK = """import torch

class Model(torch.nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = torch.nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)

batch_size = 512  # é
channels = 96
height, width = 256, 256
groups = 8
shape = (64, 32)

def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]

def get_init_inputs():
    return [channels, groups]
"""


def values(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    tree = ast.parse(text)
    body = ast.Module([node for node in tree.body if isinstance(node, ast.Assign)], [])
    exec(compile(body, "sizes", "exec"), found)
    return {name: value for name, value in found.items() if not name.startswith("__")}


def test_what_only_inputs_use_shrinks_first() -> None:
    first, *_, last = shrunk(TASK)
    assert values(first.text)["channels"] == 96 and values(first.text)["groups"] == 8
    assert (
        values(first.text)["batch_size"] * values(first.text)["height"] * values(first.text)["width"] * 4
        == 512 * 256**2
    )
    assert values(first.text)["shape"] == (64, 32)
    assert first.sizes["batch_size"] == (512, values(first.text)["batch_size"])
    assert min(values(last.text)[name] for name in ("batch_size", "height", "width")) >= 8
    assert values(last.text)["channels"] % 8 == 0


def test_growing_goes_up_in_the_same_way() -> None:
    first = grown(TASK)[0]
    assert (
        values(first.text)["batch_size"] * values(first.text)["height"] * values(first.text)["width"]
        == 4 * 512 * 256**2
    )
    assert values(first.text)["channels"] == 96


def test_the_rest_of_the_text_stays() -> None:
    for made in (*shrunk(TASK), *grown(TASK)):
        before, after = TASK.splitlines(), made.text.splitlines()
        assert len(before) == len(after) and before[:10] == after[:10] and before[15:] == after[15:]


def test_sizes_inside_functions_cannot_be_changed() -> None:
    text = TASK.replace("batch_size, channels, height, width", "512, 96, 256, 256")
    assert shrunk(text) == [] and grown(text) == [] and shrunk("def f(:") == []
