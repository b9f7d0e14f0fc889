"""The built-in policy's CUDA kernels and the examples', compiled for a CPU and compared as a judge does."""

from pathlib import Path
from typing import Any

import cases
import emulation
import forwards
import hand_written
import pytest
import torch

from agent.backends.builtin import emit_cuda, submission
from agent.backends.builtin.ir import Unsupported

pytestmark = pytest.mark.torch
# One of every structure; run.py takes all tasks at all sizes.
TASKS = (
    ("loss_cross_entropy", "odd"), ("norm_group", "even"), ("norm_layer", "wide"),
    ("pw_rotary", "even"), ("pw_masked_where", "even"), ("red_global_max", "even"),
    ("red_seq_mean_masked", "odd"), ("soft_channels", "even"), ("soft_log", "wide"),
)  # fmt: skip
EXAMPLES = sorted(path.name for path in hand_written.EXAMPLES.glob("cuda-*"))


def check(model: torch.nn.Module, inputs: list[Any], folder: Path, variant: emit_cuda.Variant) -> None:
    """Right with pages after and before every tensor, with special values, and the same in every order of threads."""
    made = submission.make(forwards.traced(model, inputs), "cuda", variant)
    library = emulation.Library({k: v for k, v in made.files.items() if k.endswith(".cu")}, folder)
    outputs = []
    for seed, at_end in ((0, True), (3, False)):
        extension = emulation.module(library, seed=seed, at_end=at_end)
        new = forwards.new_module(made.files["model_new.py"], model, extension)
        assert forwards.differences(model, new, inputs) == []
        outputs.append(forwards.leaves(new(*inputs)))
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True)), "the order of threads decides"
    assert forwards.differences(model, new, forwards.special(inputs)) == []


@pytest.mark.parametrize(("name", "sizes"), TASKS)
def test_tasks(name: str, sizes: str, tmp_path: Path) -> None:
    model, inputs = forwards.task(forwards.task_text(name, sizes))
    check(model, inputs, tmp_path, emit_cuda.VARIANTS[len(name) % len(emit_cuda.VARIANTS)])


@pytest.mark.parametrize("name", cases.CASES)
def test_edges(name: str, tmp_path: Path) -> None:
    model, inputs = cases.CASES[name]
    check(model, inputs, tmp_path, emit_cuda.VARIANTS[len(name) % len(emit_cuda.VARIANTS)])


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, tmp_path: Path) -> None:
    files = hand_written.written(name)
    library = emulation.Library({k: v for k, v in files.items() if k.startswith("kernels/")}, tmp_path)
    model, inputs, arguments = hand_written.task(name)
    for seed, at_end in ((0, True), (3, False)):
        extension = emulation.module(library, seed=seed, at_end=at_end)
        new = forwards.new_module(files["model_new.py"], model, extension, arguments=arguments)
        assert forwards.differences(model, new, inputs) == []


def test_tensors_without_elements_are_refused() -> None:
    model = cases.Calls(lambda x: x * 2)
    graph = forwards.traced(model, [torch.zeros(0, 4)])
    for make in (lambda: submission.make(graph, "cuda"), lambda: submission.make_triton(graph)):
        with pytest.raises(Unsupported, match="without elements"):
            make()


def test_variants_differ_in_the_lines_that_they_name() -> None:
    model, inputs = forwards.task(forwards.task_text("norm_layer", "even"))
    graph = forwards.traced(model, inputs)
    first = submission.make(graph, "cuda").files[emit_cuda.FILE]
    for variant in emit_cuda.VARIANTS[1:]:
        text = first
        for old, new in zip(emit_cuda.VARIANTS[0].settings, variant.settings, strict=True):
            assert text.count(old) == 1
            text = text.replace(old, new)
        assert text == submission.make(graph, "cuda", variant).files[emit_cuda.FILE] != first
