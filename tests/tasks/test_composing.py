"""Candidates: the same for the same seed, valid Python, shapes by the same rules as the crawl's, quotas of the mix."""

import ast
import importlib.util
import itertools
import random
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from agent.errors import ConfigError
from agent.tasks.synthesis import shapes
from agent.tasks.synthesis.candidate import NotMade, Source
from agent.tasks.synthesis.compose import compose
from agent.tasks.synthesis.mix import KINDS, PAPER, parse_mix, quotas
from agent.tasks.synthesis.operators import catalogue, without
from agent.tasks.synthesis.sizing import DEVICES, estimate_ms, size
from agent.tasks.task import check_text

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {2: (6, 16), 3: (4, 8, 16), 4: (4, 8, 10, 12), 5: (2, 8, 6, 7, 8)}


def crawl_rules() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crawl_shapes", ROOT / "tools" / "crawling" / "shapes.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_sides_foretell_the_same_shapes() -> None:
    rules, compared = crawl_rules(), 0
    for operator in catalogue().operators:
        entry = {"rule": operator.rule, "picks": operator.picks, "sizes": operator.sizes}
        for rank in operator.ranks:
            for picks in itertools.islice(rules.all_picks(entry), 4):
                assert shapes.after(operator, SHAPES[rank], picks) == rules.after(entry, SHAPES[rank], picks)
                compared += 1
    assert compared > 500


def test_the_catalogue_has_modules_functions_methods_and_transformers() -> None:
    known = catalogue()
    forms = Counter((operator.source, operator.form) for operator in known.operators)
    assert forms["torch", "module"] > 50 and forms["torch", "function"] > 60 and forms["torch", "method"] > 30
    assert len(known.of("transformers")) > 20
    assert all(
        operator.signature and operator.versions for operator in known.operators if operator.family != "transformers"
    )


def test_a_missing_operator_is_named_and_never_used() -> None:
    known = without({"torch.nn.Conv2d", "torch.nn.GELU"})
    assert known.missing == ("torch.nn.Conv2d", "torch.nn.GELU")
    for number in range(60):
        made = compose(random.Random(f"{number}"), known, operators=3)
        assert made is None or not {"torch.nn.Conv2d", "torch.nn.GELU"} & set(made.names)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_candidates_are_tasks_and_depend_on_seed_and_number_alone(target: str) -> None:
    first, again = (Source(3, target, catalogue()) for _ in range(2))  # type: ignore[arg-type]
    other = Source(4, target, catalogue())  # type: ignore[arg-type]
    texts = set()
    for kind in KINDS:
        for number in (0, 1, 2, 7, 30):
            made = first.candidate(kind, number)
            twin = again.candidate(kind, number)
            assert made == twin
            if isinstance(made, NotMade):
                continue
            check_text(made.text, label=made.id)
            texts.add(made.text)
            changed = other.candidate(kind, number)
            assert isinstance(changed, NotMade) or changed.text != made.text
            count = 1 if kind == "transformers" else int(kind[-1])
            assert len(made.ops) == count
    assert len(texts) > 20


def test_residuals_branches_parameters_and_further_inputs_occur() -> None:
    seen: Counter[str] = Counter()
    for number in range(200):
        made = compose(random.Random(f"shape/{number}"), catalogue(), operators=4)
        assert made is not None
        seen["branch"] += any(node.first != at for at, node in enumerate(made.nodes))
        for node in made.nodes:
            if node.second:
                seen[node.second[0]] += 1
    assert all(seen[name] > 5 for name in ("branch", "value", "input", "weight")), seen


def test_every_value_of_a_composition_is_used() -> None:
    for number in range(100):
        made = compose(random.Random(f"used/{number}"), catalogue(), operators=5)
        assert made is not None
        used = {node.first for node in made.nodes}
        used |= {node.second[1] for node in made.nodes if node.second and node.second[0] == "value"}
        assert used >= set(range(len(made.nodes)))


def test_sizes_aim_at_the_middle_of_the_band_and_keep_the_memory_bound() -> None:
    for target, number in itertools.product(("cpu", "cuda"), range(60)):
        made = compose(random.Random(f"size/{number}"), catalogue(), operators=2)
        device = DEVICES[target]
        sized = size(made, device) if made else None
        if sized is None:
            continue
        assert 1.0 < sized.estimate_ms < 30.0
        assert sized.value_bytes <= device.memory_bytes
        assert estimate_ms(sized.composition, sized.batch, device) == pytest.approx(sized.estimate_ms, abs=1e-3)


def test_a_model_uses_each_name_that_it_defines() -> None:
    for number in range(40):
        made = Source(9, "cpu", catalogue()).candidate("torch#4", number)
        if isinstance(made, NotMade):
            continue
        model = next(node for node in ast.parse(made.text).body if isinstance(node, ast.ClassDef))
        init, forward = (node for node in model.body if isinstance(node, ast.FunctionDef))
        members = {
            node.attr for node in ast.walk(init) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        read = {node.attr for node in ast.walk(forward) if isinstance(node, ast.Attribute)}
        assert members <= read, made.text


@pytest.mark.parametrize("count", [1, 10, 200, 1000, 6000])
def test_quotas_are_within_one_task_of_the_mix(count: int) -> None:
    found = quotas(PAPER, count)
    assert sum(found.values()) == count
    assert all(abs(found[kind] - count * PAPER[kind] / 100) < 1 for kind in KINDS)


def test_mixes_are_read_and_refused() -> None:
    assert parse_mix("paper") == PAPER
    assert parse_mix("torch#1:1, torch#2:3") == {"torch#1": 25.0, "torch#2": 75.0}
    for text in ("", "torch#6:1", "torch#2:-1", "torch#2:x", "torch#1:0", "torch#1:1,torch#1:2"):
        with pytest.raises(ConfigError):
            parse_mix(text)
