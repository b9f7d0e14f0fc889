"""Smaller parts of the referee: trees, seeds, weights, operators, staging, layouts, controls."""

import pytest
import torch
from referee import challenge, compare, numerics, policy, staging, tree, weights
from referee.controls import Controls
from referee.launch import WorkerFailure
from referee.numerics import Tolerance
from referee.outcome import Rejected, Unjudgeable
from referee.seeds import Seeds
from referee.truth import Truth

pytestmark = pytest.mark.torch


def test_a_nested_value_survives_as_data():
    value = {
        "a": (torch.ones(2, 3).t(), [1, 2.5, None, "s", True]),
        3: torch.zeros((), dtype=torch.int64),
        "d": torch.float16,
    }
    spec, leaves = tree.flatten(value)
    again = tree.unflatten(spec, iter(leaves))
    assert again["a"][1] == value["a"][1]
    assert again["d"] is torch.float16
    assert again["a"][0] is leaves[0]
    assert [layout["shape"] for layout in tree.tensors_of(spec)] == [[3, 2], []]
    assert tree.tensors_of(spec)[0]["stride"] == [1, 3]


def test_views_keep_their_strides_through_raw_bytes():
    base = torch.arange(40.0).view(5, 8)
    view = base[1:4, ::2]
    layout = tree.layout_of(view)
    raw = torch.frombuffer(bytearray(layout["bytes"]), dtype=torch.uint8)
    tree.view_as(raw, layout).copy_(view)
    assert torch.equal(tree.view_as(raw, layout), view)
    assert layout["bytes"] == (2 * 8 + 3 * 2 + 1) * 4


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, torch.eye(3).to_sparse()])
def test_what_cannot_cross_is_refused(value):
    with pytest.raises(tree.Unsupported):
        tree.flatten(value)


def test_seeds_differ_in_every_place_and_in_every_run():
    one, other = Seeds(), Seeds()
    places = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0)]
    found = [one.of(*place) for place in places]
    assert len(set(found)) == 4
    assert one.of("a", 0, 0) == found[0] != other.of("a", 0, 0)


def test_weights_that_are_ones_or_zeros_change_and_masks_do_not():
    model = torch.nn.BatchNorm1d(8)
    model.register_buffer("mask", torch.ones(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        weights.perturb(model, seed=1, fresh_names=set())
    after = model.state_dict()
    for name in ("weight", "bias", "running_mean", "running_var"):
        assert not torch.isclose(after[name], before[name], rtol=1e-3).all(), name
    assert torch.equal(after["mask"], before["mask"])
    assert torch.equal(after["num_batches_tracked"], before["num_batches_tracked"])
    assert (after["running_var"] > 0).all()


@pytest.mark.parametrize(
    "names",
    [
        ["aten::empty_like", "aten.view.default", "aten::zeros", "swift::kernel"],
        ["aten::to", "aten::reshape", "prim::x"],
        [],
    ],
)
def test_allocation_views_and_own_operators_are_allowed(names):
    policy.check_operators(names)


@pytest.mark.parametrize(
    "name", ["aten.mm.default", "aten::clone", "aten::_to_copy", "mkldnn::_linear_pointwise", "prims::mul"]
)
def test_torch_that_computes_is_named(name):
    with pytest.raises(Rejected, match=name.replace("::", ".").split(".")[1]) as caught:
        policy.check_operators(["aten::empty", name])
    assert caught.value.code == "policy.torch_op"


def test_only_regular_files_are_staged_and_the_task_is_not(tmp_path):
    workspace, folder = tmp_path / "w", tmp_path / "s"
    (workspace / "kernels").mkdir(parents=True)
    (workspace / "model_new.py").write_text("x = 1\n")
    (workspace / "model.py").write_text("secret\n")
    (workspace / "kernels" / "a.cpp").write_text("int a;\n")
    (workspace / "cpu_extension.so").write_bytes(b"ELF")
    (workspace / "link.py").symlink_to("/etc/hostname")
    folder.mkdir()
    sha = staging.stage(workspace, folder)
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["a.cpp", "model_new.py"]
    (workspace / "kernels" / "a.cpp").write_text("int b;\n")
    (tmp_path / "t").mkdir()
    assert staging.stage(workspace, tmp_path / "t") != sha


def test_a_workspace_without_a_submission_is_refused(tmp_path):
    (tmp_path / "model_new.py").symlink_to("/etc/hostname")
    with pytest.raises(WorkerFailure, match="model_new"):
        staging.stage(tmp_path, tmp_path / "s")


@pytest.mark.parametrize(
    "layout",
    [
        None,
        {"dtype": ["float32"], "shape": [1], "stride": [1]},
        {"dtype": "float32", "shape": [2, True], "stride": [1, 1]},
        {"dtype": "float32", "shape": [-1], "stride": [1]},
        {"dtype": "float32", "shape": [2], "stride": [1 << 60]},
        {"dtype": "float32", "shape": [2], "stride": []},
        {"dtype": "float32", "shape": [1 << 40], "stride": [1]},
    ],
)
def test_layouts_from_a_worker_are_checked(layout):
    with pytest.raises(Rejected):
        challenge.checked_layout(layout)


def test_a_layout_is_given_the_span_that_it_has():
    layout = {"dtype": "float32", "shape": [3, 4], "stride": [8, 1], "bytes": 7}
    assert challenge.checked_layout(layout)["bytes"] == (2 * 8 + 3 + 1) * 4


def spec_of(value):
    return tree.flatten(value)[0]


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (torch.zeros(2, 2), "numeric.shape"),
        (torch.zeros(2, 3, dtype=torch.float64), "numeric.dtype"),
        ((torch.zeros(2, 3),), "numeric.structure"),
        (None, "numeric.structure"),
        (torch.zeros(3).expand(2, 3), "numeric.shape"),
        (torch.zeros(4).as_strided((2, 3), (1, 1)), "numeric.shape"),
    ],
)
def test_structure_shape_and_dtype_are_compared(output, code):
    with pytest.raises(Rejected) as caught:
        compare.check_structure(spec_of(output), expected=spec_of(torch.zeros(2, 3)))
    assert caught.value.code == code


def test_a_view_is_right_where_the_reference_returns_one():
    shared = torch.zeros(3).expand(2, 3)
    compare.check_structure(spec_of(shared), expected=spec_of(shared))
    compare.check_structure(spec_of(torch.zeros(2, 3)), expected=spec_of(shared))
    compare.check_structure(spec_of(torch.zeros(3, 2).t()), expected=spec_of(torch.zeros(2, 3)))


def test_a_list_counts_as_a_tuple_and_other_values_are_compared():
    expected = spec_of((torch.zeros(2), 3, "a", None, 0.1))
    compare.check_structure(spec_of([torch.zeros(2), 3, "a", None, 0.1 + 1e-9]), expected=expected)
    with pytest.raises(Rejected):
        compare.check_structure(spec_of([torch.zeros(2), 4, "a", None, 0.1]), expected=expected)


def truth_of(*items, variants=None):
    reference = [[item] for item in items]
    return Truth(
        specs=[spec_of(items[0])],
        reference=reference,
        truth=[[item.double()] for item in items],
        variants=variants or {},
        notes=[],
        wide=True,
    )


def decided(truth, weighted=False):
    controls = Controls(precision="strict")
    controls.collect(truth, [Tolerance(dtype=torch.float32, numel=truth.reference[0][0].numel())], weighted=weighted)
    controls.decide()
    return controls.rejected


def test_an_ordinary_task_rejects_all_controls():
    one, two = torch.randn(50, 20), torch.randn(50, 20)
    low = one.bfloat16().float()
    rejected = decided(truth_of(one, two, variants={"bits10": [[low]], "previous_weights": [[two]]}), weighted=True)
    assert rejected == ["zeros", "constant", "previous_output", "lower_precision", "perturbed_weights"]


@pytest.mark.parametrize(
    ("truth", "told"),
    [
        (truth_of(torch.zeros(4, 4), torch.zeros(4, 4)), "zeros"),
        (truth_of(torch.full((4, 4), 3.0), torch.full((4, 4), 5.0)), "constant"),
        (truth_of(*[torch.arange(12.0).view(3, 4)] * 2), "another input"),
    ],
)
def test_a_task_whose_control_passes_is_not_judged(truth, told):
    with pytest.raises(Unjudgeable, match=told) as caught:
        decided(truth)
    assert caught.value.code == "task.unjudgeable"


def test_a_lower_precision_that_changes_nothing_is_no_control():
    one = torch.randn(6, 6)
    assert "lower_precision" not in decided(truth_of(one, torch.randn(6, 6), variants={"bits10": [[one.clone()]]}))


def error_of(output, truth):
    return numerics.measure(output, truth=truth, reference=truth.float())


def rough(amount, seed):
    """Noise of one part in 1 / `amount`, as a sum of many rounded terms has it."""
    return 1 + amount * torch.randn(50, 20, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_tolerance_shrinks_until_the_lower_precision_does_not_pass():
    # The reference's own error times 32 is more than the lower precision's, which is 20 times the reference's.
    exact = torch.randn(50, 20, dtype=torch.float64)
    reference, low = (exact * rough(1e-5, 1)).float(), (exact * rough(2e-4, 2)).float()
    truth = truth_of(exact, torch.randn(50, 20).double(), variants={"bits10": [[low]]})
    truth.reference[0] = [reference]
    tolerances = [Tolerance(dtype=torch.float32, numel=1000)]
    truth.teach(tolerances, inputs=1000)
    controls = Controls(precision="strict")
    assert tolerances[0].allows(error_of(low, exact))
    controls.collect(truth, tolerances, weighted=False)
    controls.decide()
    assert "lower_precision" in controls.rejected and not controls.indistinct
    assert not tolerances[0].allows(error_of(low, exact))
    for seed in range(3, 6):  # five times the reference's error, as a sequential sum has it
        assert tolerances[0].allows(error_of((exact * rough(5e-5, seed)).float(), exact))


def test_a_lower_precision_that_loses_nothing_makes_no_task_unjudgeable():
    exact = torch.randn(50, 20, dtype=torch.float64)
    low = (exact * rough(1e-6, 2)).float()
    truth = truth_of(exact, torch.randn(50, 20).double(), variants={"bits10": [[low]]})
    tolerances = [Tolerance(dtype=torch.float32, numel=1000)]
    truth.teach(tolerances, inputs=1000)
    before = tolerances[0].rms
    controls = Controls(precision="strict")
    controls.collect(truth, tolerances, weighted=False)
    controls.decide()
    assert controls.indistinct == ["lower_precision"] and "lower_precision" not in controls.rejected
    assert tolerances[0].rms == before


def test_a_declared_precision_tells_the_next_lower_one_apart():
    exact = torch.randn(50, 20, dtype=torch.float64)
    allowed, low = (exact * rough(2e-4, 1)).float(), (exact * rough(1.6e-3, 2)).float()
    truth = truth_of(exact, torch.randn(50, 20).double(), variants={"allowed": [[allowed]], "bits7": [[low]]})
    truth.variants["allowed"].append(None)
    tolerances = [Tolerance(dtype=torch.float32, numel=1000)]
    truth.teach(tolerances, inputs=1000)
    controls = Controls(precision="tf32")
    controls.collect(truth, tolerances, weighted=False)
    controls.decide()
    assert "lower_precision" in controls.rejected
    assert tolerances[0].allows(error_of((exact * rough(3e-4, 3)).float(), exact))


def test_a_single_number_may_be_constant_in_itself():
    assert decided(truth_of(torch.tensor(0.3), torch.tensor(-0.1))) == ["zeros", "previous_output"]
