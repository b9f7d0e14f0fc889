"""Structural similarity: what counts as the same task, what does not, and the nearest problem of a benchmark."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigError
from agent.export.similarity import Structure, load_benchmark, nearest, similarity, structure_of

TASK = '''
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A block."""

    def __init__(self, width, depth):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        # the residual
        y = F.gelu(self.first(x))
        return self.norm(x + self.second(y))


def get_inputs():
    return [torch.rand(8, 64)]


def get_init_inputs():
    return [64, 2]
'''
NEW_NAMES = {"x": "value", "y": "hidden", "width": "size", "first": "up", "second": "down", "4": "8", "64": "5"}
RENAMED = re.sub(r"\b\w+\b", lambda match: NEW_NAMES.get(match[0], match[0]), TASK.replace('"""A block."""', "pass"))
RENAMED = RENAMED.replace("    pass\n\n", "").replace("# the residual", "# something else")
OTHER = TASK.replace("F.gelu", "torch.cumsum").replace(
    "self.norm(x + self.second(y))", "(y.max(dim=1).values, x @ x.T)"
)


def structure(text: str, name: str = "") -> Structure:
    found = structure_of(text, name=name)
    assert found is not None
    return found


def test_names_constants_comments_and_inputs_do_not_count() -> None:
    assert similarity(structure(TASK), structure(RENAMED)) == 1.0


def test_other_operators_do() -> None:
    assert similarity(structure(TASK), structure(OTHER)) < 0.9


def test_one_more_statement_is_still_nearly_the_same() -> None:
    more = TASK.replace("return self.norm", "y = y * 2\n        return self.norm")
    assert 0.9 < similarity(structure(TASK), structure(more)) < 1.0


@pytest.mark.parametrize("text", ["", "class Net: ...", "class Model(:", "def f():\n\treturn\n  x", "(" * 5000])
def test_what_is_no_task_has_no_structure(text: str) -> None:
    assert structure_of(text) is None


NAMES = st.lists(st.sampled_from(("relu", "gelu", "add", "mul", "sum", "exp")), min_size=1, max_size=8)


def chain(names: list[str]) -> str:
    body = "".join(f"        x = torch.{name}(x)\n" for name in names)
    return f"class Model:\n    def forward(self, x):\n{body}        return x\n"


@settings(max_examples=60)
@given(st.lists(NAMES, min_size=1, max_size=6), NAMES)
def test_the_nearest_problem_is_the_one_that_a_full_comparison_finds(
    benchmark: list[list[str]], task: list[str]
) -> None:
    problems = [structure(chain(names), str(at)) for at, names in enumerate(benchmark)]
    one = structure(chain(task))
    found = nearest(one, problems)
    values = [similarity(one, problem) for problem in problems]
    assert found.similarity == round(max(values), 4)
    assert found.name == problems[values.index(max(values))].name


@given(NAMES, NAMES)
def test_similarity_is_symmetric_and_one_only_for_equal_structures(one: list[str], other: list[str]) -> None:
    first, second = structure(chain(one)), structure(chain(other))
    assert similarity(first, second) == similarity(second, first)
    assert (similarity(first, second) == 1.0) == (one == other)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=90), st.lists(st.sampled_from("abc"), min_size=1))
def test_similarity_is_that_of_the_longest_common_subsequence(one: list[str], other: list[str]) -> None:
    row = [0] * (len(other) + 1)
    for left in one:
        before = row[:]
        for at, right in enumerate(other):
            row[at + 1] = before[at] + 1 if left == right else max(before[at + 1], row[at])
    first, second = (Structure("", tuple(tokens), Counter(tokens)) for tokens in (one, other))
    assert similarity(first, second) == 2 * row[-1] / (len(one) + len(other))


def test_a_checkout_is_read_without_running_it(tmp_path: Path) -> None:
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "1_block.py").write_text(TASK)
    (level / "2_bomb.py").write_text("raise SystemExit('executed')\nclass Model: ...")
    (level / "3_broken.py").write_text("class Model(:")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tool.py").write_text("class Model: ...")
    assert [problem.name for problem in load_benchmark(tmp_path)] == ["level1/1_block.py", "level1/2_bomb.py"]


def test_a_folder_without_problems_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no class Model"):
        load_benchmark(tmp_path)
    with pytest.raises(ConfigError, match="not a folder"):
        load_benchmark(tmp_path / "missing")
