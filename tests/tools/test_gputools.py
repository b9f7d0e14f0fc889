"""What GPU tools say: parsed as nvcc 13.0 and cuobjdump 13 wrote it for sm_90; runs where there is a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from building import device, resources
from gputools import machine_code, memory_check

from agent.backends.script import read_script
from agent.judging.reports import InspectReport, SanitizeReport

ROOT = Path(__file__).resolve().parents[2]
PTXAS = """kernels/t.cu(12): warning #177-D: variable "unused" was declared but never referenced
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z12scale_kernelILi256EEvPKfPflf' for 'sm_90a'
ptxas info    : Function properties for _Z12scale_kernelILi256EEvPKfPflf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 13.325 ms
ptxas info    : Compiling entry function '_Z5spillPKdPdi' for 'sm_90a'
ptxas info    : Function properties for _Z5spillPKdPdi
    2080 bytes stack frame, 3388 bytes spill stores, 4336 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 2080 bytes cumulative stack size
ptxas info    : Compile time = 37.097 ms
"""
SASS = """
	code for sm_90
	.target	sm_90

		Function : _Z11mean_kernelPKfPfi
	.headerflags	@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                     /* 0x00000a00ff017b82 */
                                                                              /* 0x000fe20000000800 */
        /*0070*/               @P0 BRA 0x120 ;                                /* 0x0000000000280947 */
        /*00c0*/                   IMAD.WIDE R2, R7, 0x4, R4 ;                /* 0x0000000407027825 */
        /*00d0*/                   LDG.E R3, desc[UR6][R2.64] ;               /* 0x0000000602037981 */
        /*0100*/                   FADD R6, R3, R6 ;                          /* 0x0000000603067221 */
        /*0110*/              @!P0 BRA 0xc0 ;                                 /* 0xfffffffc00e88947 */
        /*0130*/                   SHFL.BFLY PT, R3, R6, 0x10, 0x1f ;         /* 0x0e001f0006037f89 */
        /*0150*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;              /* 0x0000000000007b1d */
        /*0160*/                   LDG.E.128.CONSTANT R4, desc[UR6][R4.64] ;  /* 0x0000000604047981 */
        /*0170*/                   LDGSTS.E [R0], desc[UR6][R4.64] ;          /* 0x0000000604047981 */
        /*0180*/                   BRA 0x180 ;                                /* 0xfffffffc00fc7947 */
"""
MODEL = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(3, 4)]


def get_init_inputs():
    return []
"""


def test_what_ptxas_gave_each_kernel() -> None:
    scale, spill = resources.parse(PTXAS, source="kernels/t.cu")
    assert (scale["registers"], scale["shared_bytes"], scale["barriers"], scale["spill_load_bytes"]) == (12, 1024, 1, 0)
    assert (spill["stack_bytes"], spill["spill_store_bytes"], spill["spill_load_bytes"]) == (2080, 3388, 4336)
    assert resources.without(PTXAS).splitlines() == [PTXAS.splitlines()[0]]
    assert resources.parse("ptxas fatal   : memory exhausted", source="x") == []


def test_machine_code_is_counted_and_its_innermost_loop_shown() -> None:
    (mean,) = machine_code.parse(SASS)
    assert (mean["symbol"], mean["instructions"]) == ("_Z11mean_kernelPKfPfi", 11)
    counts = mean["counts"]
    assert counts["16-byte loads"] == 1 and counts["loads from device memory"] == 2
    assert counts["asynchronous copies to shared memory"] == counts["shuffles"] == counts["barriers"] == 1
    assert mean["excerpt_of"] == "innermost loop"
    assert mean["excerpt"][0].startswith("IMAD.WIDE") and mean["excerpt"][-1] == "@!P0 BRA 0xc0"
    assert machine_code.parse("") == []


def test_only_what_the_checker_says_about_the_submission_is_shown() -> None:
    lines = ["COMPUTE-SANITIZER", "Invalid __global__ write", "    Host Frame: x"]
    said = "a program's line\n" + "".join(f"========= {line}\n" for line in lines)
    assert memory_check.findings(said + "========= ERROR SUMMARY: 1 error\n") == [
        "Invalid __global__ write",
        "ERROR SUMMARY: 1 error",
    ]
    assert memory_check.summary(said) == ""


def test_architectures() -> None:
    assert [device.named_target(name) for name in ("sm_90", "9.0", "90a", "hopper", "sm_9x")] == [
        "90", "90", "90a", None, None
    ]  # fmt: skip
    assert [device.own_target(name) for name in ("80", "90", "100")] == ["80", "90a", "100a"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x * self.weight", {"ran": 3}),
        ("raise ValueError('no')", {"error": {"code": "runtime.exception", "detail": "ValueError: no"}}),
        ("import os; os._exit(7)", None),
    ],
)
def test_a_submission_runs_as_the_subject_of_a_profiler(tmp_path: Path, body: str, expected: object) -> None:
    (tmp_path / "model.txt").write_text(MODEL)
    text = MODEL.replace("Model(", "ModelNew(").replace("return x * self.weight", f"print('hello'); {body}")
    (tmp_path / "model_new.py").write_text(text)
    argv = [sys.executable, "-I", "-W", "ignore", str(ROOT / "tools" / "gputools" / "subject.py"), "--device", "cpu"]
    argv += ["--model", str(tmp_path / "model.txt"), "--folder", str(tmp_path), "--warm-up", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    if expected is None:
        assert done.returncode == 7
    else:
        assert json.loads(done.stdout.splitlines()[-1]) == expected, done.stderr


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="no NVIDIA GPU on this machine")
def test_an_example_is_inspected_and_sanitized(tmp_path: Path) -> None:
    example = ROOT / "examples" / "cuda-row-softmax"
    (tmp_path / "kernels").mkdir()
    for turn in read_script(example / "turns.md").turns:
        for name, arguments in turn.actions:
            if name == "write_file":
                (tmp_path / arguments["path"]).write_text(arguments["content"])
    task = json.dumps({"model_py": (example / "model.py").read_text()})

    def tool(name: str, *flags: str) -> str:
        argv = [sys.executable, "-I", str(ROOT / "tools" / f"{name}.py"), "--workspace", str(tmp_path), *flags]
        return subprocess.run(argv, input=task, capture_output=True, text=True, timeout=500).stdout

    seen = InspectReport.model_validate_json(tool("inspect_kernels", "--counters", "--code", "softmax"))
    assert seen.status == "inspected" and "row_softmax_kernel" in seen.kernels[0].name, seen
    assert seen.roofline is not None and 0.3 < seen.roofline.share_of_bandwidth < 1.5
    assert seen.counters or any("ncu" in text for text in seen.missing)
    assert seen.code or seen.code_missing
    assert SanitizeReport.model_validate_json(tool("sanitize")).status == "clean"
