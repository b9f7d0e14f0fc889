"""Parts of the judge's GPU half that need no GPU: what it says about kernels, which addresses it asks for, what it
takes off.
"""

import array
import time
from pathlib import Path

import pytest
import torch
from referee import announce, examine, faults, outcome, policy, seal, worker
from referee.launch import Window, WorkerFailure
from referee.outcome import Rejected
from referee.protocol import Received
from referee.samples import Sample, Times

pytestmark = pytest.mark.torch

OWN = ("softmax_rows(float4 const*, float4*, int)", 2, 63.5)
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >",
    1,
    2.0,
)
TORCH = ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float>", 1, 110.0)
INDUCTOR = ("triton_per_fused__softmax_mul_0", 1, 70.0)
BLAS = ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", 1, 342.0)


def test_time_on_the_gpu_is_told_by_owner():
    assert policy.check_kernels([OWN, FILL, BLAS], strict=True) == {"own": 63.5, "vendor": 342.0, "torch": 2.0}


@pytest.mark.parametrize("kernel", [TORCH, INDUCTOR])
def test_kernels_of_torch_compute_under_no_strict_forward(kernel):
    with pytest.raises(Rejected, match=r"policy\.torch_op"):
        policy.check_kernels([OWN, kernel], strict=True)
    assert policy.check_kernels([OWN, kernel], strict=False)["torch"] == kernel[2]


def test_a_triton_kernel_of_ones_own_is_ones_own():
    assert policy.check_kernels([("triton_per_row_softmax", 1, 5.0)], strict=True)["own"] == 5.0


def test_no_kernel_at_all_is_a_finding_under_either_policy():
    for strict in (True, False):
        with pytest.raises(Rejected, match=r"policy\.no_kernel"):
            policy.check_kernels([], strict=strict)


@pytest.mark.parametrize("count", [3, 310])
def test_only_addresses_outside_of_named_allocations_are_asked_for(count):
    announcer = announce.Announcer()
    announcer._remember([[4096, 1000, "aa"], [8192, 4096, "bb"]])
    inside = [4096 + 7 * at for at in range(count // 2)] + [8192 + at for at in range(count - count // 2)]
    outside = [4095, 5096, 8191, 12288]
    pointers = array.array("Q", [*inside, *outside])
    find = announcer._unnamed
    assert find(array.array("Q")) == []
    assert [pointer for pointer in find(pointers) if pointer not in inside] == outside
    assert find(array.array("Q", inside)) == [pointer for pointer in inside if not _named(pointer)]


def _named(pointer):
    return 4096 <= pointer < 5096 or 8192 <= pointer < 12288


def test_lots_fall_into_the_tensors_and_on_the_last_one_always():
    sizes, pointers = [100_000, 0, 8], [1_000_000 * (at + 1) for at in range(12)]
    places = seal.Lots().places(pointers, sizes)
    assert places[0][0] >= pointers[-1] and places[0][1] == 8
    for address, count in places:
        at = max(index for index, pointer in enumerate(pointers) if pointer <= address)
        assert address + count <= pointers[at] + sizes[at % 3]
    assert seal.Lots().places([], sizes) == []


def times(eager, candidate, *, protocol=(), calls=10):
    def side(values):
        return [Sample(us=us, reply_us=us, cpu_us=us, waited_share=0.0) for us in values]

    samples = {"eager": side(eager), "compile": side(eager), "submission": side(candidate)}
    return Times(calls=calls, samples=samples, protocol_us=list(protocol))


def test_what_the_protocol_takes_comes_off_every_side():
    plain, corrected = times([120.0] * 8, [70.0] * 8), times([120.0] * 8, [70.0] * 8, protocol=[190, 200, 900])
    assert plain.interval("eager").ratio == pytest.approx(120 / 70)
    assert corrected.interval("eager").ratio == pytest.approx(101 / 51)  # the least of few
    assert corrected.median_us("submission") == pytest.approx(51.0)


@pytest.mark.parametrize(("ran_ns", "beside_ns"), [(400_000, 600_000), (1_000_000, 0), (1_000_400, 0)])
def test_what_a_trusted_window_takes_beside_its_calls_is_protocol(ran_ns, beside_ns):
    window = Window(
        wall_ns=1_000_000,
        reply_ns=0,
        cpu_ns=0,
        waited_ns=0,
        reply=Received(fields={"ran_ns": ran_ns}, blob=b"", descriptors=()),
    )
    assert window.protocol_ns() == beside_ns


def test_rather_too_little_than_too_much_is_taken_for_protocol():
    assert times([10.0] * 8, [10.0] * 8, protocol=[10.0, 12, 14, 90]).protocol() < 12
    assert times([10.0] * 8, [10.0] * 8, protocol=[1000.0]).median_us("eager") == 7.0


def test_kernels_of_a_vendor_that_are_no_product_and_no_convolution_are_refused():
    softmax = ("void cudnn::softmax_fw_small_kernel<2, float, float, 256>", 1, 50.0)
    layout = ("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>", 1, 5.0)
    with pytest.raises(Rejected, match=r"policy\.vendor_library"):
        policy.check_kernels([OWN, softmax], strict=True)
    assert policy.check_kernels([OWN, softmax, layout], strict=False)["vendor"] == 55.0
    assert policy.check_kernels([OWN, layout], strict=True)["vendor"] == 5.0


# As CUDA, the driver and torch say it.
DRIVER_TOO_OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update"
NO_IMAGE = "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
GONE = "torch.AcceleratorError: CUDA error: GPU is lost"
ILLEGAL = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("kind", "detail", "trusted", "code"),
    [
        ("exception", DRIVER_TOO_OLD, True, "runtime.no_device"),
        ("exception", NO_IMAGE, True, "runtime.no_device"),
        ("task.raises", f"Model.forward raises {GONE}", True, "runtime.no_device"),
        ("exception", "RuntimeError: No CUDA GPUs are available", True, "runtime.no_device"),
        ("oom", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 GiB", True, "task.out_of_memory"),
        ("exception", ILLEGAL, True, "task.raises"),
        ("exception", ILLEGAL, False, "runtime.exception"),
        ("exception", GONE, False, "runtime.exception"),  # it may say so; whether it is so is looked at
        ("timeout", "no answer within 60 s", False, "runtime.timeout"),
    ],
)
def test_whose_fault_an_error_of_the_gpu_is(kind, detail, trusted, code):
    found = outcome.blame(WorkerFailure("eager" if trusted else "submission", kind, detail), trusted=trusted)
    assert (found.code, isinstance(found, Rejected)) == (code, not trusted)


@pytest.mark.parametrize(
    "text", ["CUDA out of memory.", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when"]
)
def test_memory_that_is_missing_on_a_gpu_is_no_other_error(text):
    assert worker._failure(RuntimeError(text))["error"] == "oom"


@pytest.mark.parametrize(("alive", "status"), [(True, "rejected"), (False, "error")])
def test_nobody_is_blamed_where_the_gpu_is_gone(monkeypatch, alive, status):
    monkeypatch.setattr(examine.faults, "gpu_answers", lambda: alive)
    findings = examine.Findings(
        reasons=[{"code": "runtime.exception", "detail": ILLEGAL}], status="rejected", correct=False
    )
    examine._acquit(findings)
    assert findings.status == status
    code = findings.reasons[0]["code"]
    assert code == ("runtime.exception" if alive else "runtime.device_lost")
    assert alive or ("illegal memory access" in findings.reasons[0]["detail"] and findings.correct is None)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_does_not_answer():
    assert not faults.gpu_answers(30)


def test_a_worker_tells_how_long_its_calls_took():
    asked = worker.Worker()
    asked.call, asked.items = lambda x: (time.sleep(0.02), x)[1], [(torch.zeros(2),)] * 2
    began = time.perf_counter_ns()
    fields, _, _ = asked.go(Received(fields={"nonce": "n", "log": False}, blob=b"", descriptors=()))
    assert 40e6 <= fields["ran_ns"] <= time.perf_counter_ns() - began
