"""What GPU tools say: parsed as nvcc 13.0 and cuobjdump 13 wrote it for sm_90; runs where there is a GPU."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sanitize
import self_test
from building import device, resources
from gputools import counters, machine_code, memory_check, self_checks, staged

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


def marked(*lines: str) -> str:
    return "".join(f"========= {line}".rstrip() + "\n" for line in lines)


NEW_FRAMES = marked(
    "COMPUTE-SANITIZER",
    "Invalid __global__ write of size 4 bytes",
    "    at scale_kernel(const float *, float *, long)+0x130 in scale.cu:12",
    "    by thread (31,0,0) in block (7,0,0)",
    "    Access to 0x7f2b14001000 is out of bounds",
    "    and is 1 bytes after the nearest allocation at 0x7f2b14000000 of size 4,096 bytes",
    "    Saved host backtrace up to driver entry point at kernel launch time",
    "        Host Frame: scale_launch [0x12d0] in cuda_extension.so",
    "",
    "ERROR SUMMARY: 12 errors",
    "ERROR SUMMARY: 2 errors were not printed. Use --print-limit option to adjust the number of printed errors",
)
OLD_FRAMES = marked(
    "COMPUTE-SANITIZER",
    "Invalid __shared__ read of size 16 bytes",
    "    at 0x70 in row_kernel(float *)",
    "    Address 0x404 is misaligned",
    "    Saved host backtrace up to driver entry point at kernel launch time",
    "    Host Frame: [0x334640]",
    "               in /lib/x86_64-linux-gnu/libcuda.so.1",
    "    Host Frame:cudaLaunchKernel [0x6bedb]",
    "               in /opt/torch/lib/libcudart.so.13",
    "ERROR SUMMARY: 1 error",
)
RACES = marked(
    "COMPUTE-SANITIZER",
    "Error: Race reported between Write access at row_kernel(float *)+0x550 in row.cu:41",
    "    and Read access at row_kernel(float *)+0x580 in row.cu:44 [1024 hazards]",
    "",
    "RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)",
)
RAN = '{"ran": 1}\n'
# What the tool prints, how it ends; then what is made of it.
MEMORY = [
    (NEW_FRAMES + RAN, 9, "found", "ERROR SUMMARY: 12 errors"),
    (OLD_FRAMES, 1, "found", "ERROR SUMMARY: 1 error"),  # the program's own exit code goes first
    (RACES + RAN, 9, "found", "1 hazard displayed"),
    (marked("RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)") + RAN, 0, "found", "2 hazards"),
    (marked("ERROR SUMMARY: 1,234 errors"), 0, "found", "1,234 errors"),
    (marked("COMPUTE-SANITIZER") + RAN + marked("ERROR SUMMARY: 0 errors"), 0, "clean", "0 errors"),
    (RAN + marked("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"), 0, "clean", "0 hazards"),
    (marked("COMPUTE-SANITIZER", "Error: Device not supported. See the manual"), 1, "error", "Device not sup"),
    (marked("Error: Target application terminated before first instrumented API call"), 1, "error", "terminated"),
    (marked("Internal Sanitizer Error: The Sanitizer encountered an error"), 1, "error", "Internal Sanitizer Error"),
    (marked("ERROR SUMMARY: 7 errors were not printed. Use --print-limit"), 3, "error", "no summary, exit code 3"),
    (marked("ERROR SUMMARY: 0 errors"), 0, "error", "did not get to its end: it did not answer"),
    (marked("Target application returned an error", "ERROR SUMMARY: 0 errors") + RAN, 1, "error", "exit code 1"),
    (
        '{"error": {"code": "runtime.exception", "detail": "torch.OutOfMemoryError: CUDA out of memory."}}\n'
        + marked("ERROR SUMMARY: 0 errors"), 0, "error", "runtime.exception: torch.OutOfMemoryError",
    ),
    ("", 127, "error", "no summary, exit code 127"),
]  # fmt: skip


def in_place_of(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, script: str) -> Path:
    """A program of this name, first on PATH."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return path


@pytest.mark.parametrize(("said", "code", "status", "detail"), MEMORY)
def test_what_the_memory_checker_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int, status: str, detail: str
) -> None:
    in_place_of(monkeypatch, tmp_path, "compute-sanitizer", f"sys.stdout.write({said!r}); sys.exit({code})")
    result = memory_check.check(["subject"], what="memcheck", scratch=tmp_path, limit_s=20)
    assert (result["status"], detail in result["detail"]) == (status, True), result


def test_the_checker_is_told_that_failed_calls_are_no_findings_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import time; print('=========', *sys.argv[1:], flush=True); time.sleep(60)"
    in_place_of(monkeypatch, tmp_path, "compute-sanitizer", script)
    began = time.monotonic()
    result = memory_check.check(["subject", "--calls", "1"], what="racecheck", scratch=tmp_path, limit_s=1)
    assert (result["status"], result["detail"]) == ("error", "took longer than 1 s")
    assert time.monotonic() - began < 20
    (line,) = result["lines"]
    assert line.startswith("--tool racecheck ") and "--report-api-errors no" in line
    assert line.endswith("subject --calls 1")
    script = """
if "--padding" in sys.argv:
    sys.exit(print("========= Error: unrecognised option '--padding'") or 2)
print('{"ran": 1}'); print("========= ERROR SUMMARY: 0 errors")"""
    in_place_of(monkeypatch, tmp_path, "compute-sanitizer", script)
    older = memory_check.check(["subject"], what="memcheck", scratch=tmp_path, limit_s=20)
    assert (older["status"], older["detail"]) == ("clean", "ERROR SUMMARY: 0 errors")
    monkeypatch.setattr(memory_check.programs, "find", lambda name: None)
    missing = memory_check.check(["subject"], what="memcheck", scratch=tmp_path)
    assert (missing["status"], missing["detail"]) == ("error", "compute-sanitizer is not installed")


@pytest.mark.parametrize(("reference", "status"), [("0 errors", "clean"), ("3 errors", "error")])
def test_what_the_reference_shows_too_is_not_held_against_a_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, status: str
) -> None:
    script = f"""
reference = "--reference" in sys.argv
print('{RAN.strip()}')
print("========= ERROR SUMMARY:", "{reference}" if reference else "3 errors")
sys.exit(9 if not reference or "{reference}" != "0 errors" else 0)"""
    in_place_of(monkeypatch, tmp_path, "compute-sanitizer", script)
    place = staged.Staged(tmp_path, tmp_path, tmp_path / "model.txt", tmp_path / "x.so", {}, "cuda")
    (result,) = sanitize.checked(place, ["memcheck"], limit_s=20)
    assert result["status"] == ("found" if status == "clean" else "error"), result
    assert ("the reference alone" in result["detail"]) == (status == "error")
    assert sanitize.overall([result]) == result["status"]


def test_only_what_the_checker_says_about_the_submission_is_shown() -> None:
    assert memory_check.findings("a program's line\n" + NEW_FRAMES) == [
        "Invalid __global__ write of size 4 bytes",
        "at scale_kernel(const float *, float *, long)+0x130 in scale.cu:12",
        "by thread (31,0,0) in block (7,0,0)",
        "Access to 0x7f2b14001000 is out of bounds",
        "and is 1 bytes after the nearest allocation at 0x7f2b14000000 of size 4,096 bytes",
        "ERROR SUMMARY: 12 errors",
        "ERROR SUMMARY: 2 errors were not printed. Use --print-limit option to adjust the number of printed errors",
    ]
    assert memory_check.findings(OLD_FRAMES)[-2:] == ["Address 0x404 is misaligned", "ERROR SUMMARY: 1 error"]
    assert len(memory_check.findings(RACES)) == 3


HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    '"Block Size","Grid Size","Device","CC"'
)
KERNEL = (
    '"python3","host","void row_kernel<float, 4>(const float *, float *)","1","7","(256, 1, 1)","(512, 1, 1)","0","9.0"'
)
RAW = f"""==PROF== Connected to process 4711 (/opt/torch/.venv/bin/python3)
==PROF== Profiling "row_kernel" - 0: 0%....50%....100% - 9 passes
{{"ran": 4}}
==PROF== Disconnected from process 4711
{HEAD},"gpu__time_duration.sum","dram__bytes.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","lts__t_sector_hit_rate.pct"
"","","","","","","","","","","","UNIT_T","UNIT_B","%","%"
"0","4711",{KERNEL},"TIME","BYTES","41.25","n/a"
a line of the program, with a quote " in it
"1","4711",{KERNEL},"TIME","BYTES","41.25","50"
"""
LONG = f"""==PROF== Connected to process 1
{HEAD},"Section Name","Metric Name","Metric Unit","Metric Value"
"0","1",{KERNEL},"Command line profiler metrics","gpu__time_duration.sum","usecond","1,024.50"
"0","1",{KERNEL},"Command line profiler metrics","dram__bytes.sum","Mbyte","268.44"
"0","1",{KERNEL},"Raw","smsp__sass_thread_inst_executed_op_ffma_pred_on.sum","inst","5,000,000"
"1","1",{KERNEL},"Command line profiler metrics","gpu__time_duration.sum","ns","640"
"""


@pytest.mark.parametrize(
    ("time_", "unit", "size", "size_unit"),
    [("64,512", "ns", "268,435,456", "byte"), ("64.512", "us", "268.435456", "Mbyte"),
     ("0.064512", "msecond", "0.268435456", "Gbyte"), ("64512.0", "nsecond", "268435.456", "Kbyte")],
)  # fmt: skip
def test_counters_in_the_units_that_ncu_chooses(time_: str, unit: str, size: str, size_unit: str) -> None:
    text = RAW.replace("TIME", time_).replace("UNIT_T", unit).replace("BYTES", size).replace("UNIT_B", size_unit)
    first, second = counters.parse(text, counters.BASIC)
    assert first["name"].startswith("void row_kernel") and (first["grid"], first["block"]) == (
        "(512, 1, 1)",
        "(256, 1, 1)",
    )
    assert first["time_ns"] == pytest.approx(64512) and first["dram_bytes"] == pytest.approx(268435456)
    assert (first["sm_pct"], "l2_hit_pct" in first, second["l2_hit_pct"]) == (41.25, False, 50)


def test_counters_with_a_line_for_each_metric() -> None:
    first, second = counters.parse(LONG, {**counters.BASIC, **counters.ARITHMETIC})
    assert (first["time_ns"], first["dram_bytes"]) == (pytest.approx(1024500), pytest.approx(268440000))
    assert first["flop_per_s"] == pytest.approx(1e7 / 1024.5e-6)
    assert (second["time_ns"], "dram_bytes" in second) == (640, False)
    for nothing in (
        "",
        "==WARNING== No kernels were profiled.\n",
        HEAD,
        HEAD + ',"x"\n"","","","","","","","","","","","%"\n',
    ):
        assert counters.parse(nothing, counters.BASIC) == []


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access the counters", 1, "may not read"),
        ("==WARNING== No kernels were profiled.", 0, "No kernels were profiled"),
        ("==ERROR== The application returned an error code (1).\n==WARNING== No kernels", 1, "error code (1)"),
        ("==PROF== Connected to process 1\n==ERROR== Unknown Error on device 0.", 1, "Unknown Error on device 0"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", 1, "LibraryNotLoaded"),
        ("", 3, "exit code 3"),
    ],
)
def test_why_there_are_no_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int, words: str
) -> None:
    in_place_of(monkeypatch, tmp_path, "ncu", f"print({said!r}); sys.exit({code})")
    with pytest.raises(counters.NoCounters, match=re.escape(words)):
        counters.collect(["subject"], scratch=tmp_path)


def test_a_metric_that_this_ncu_does_not_know_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RAW.replace("TIME", "10").replace("UNIT_T", "ns").replace("BYTES", "20").replace("UNIT_B", "byte")
    script = f"""
asked = sys.argv[sys.argv.index("--metrics") + 1]
for name in ("lts__t_sector_hit_rate", "dram__bytes"):
    if name + "." in asked:
        sys.exit(print(f"==ERROR== Failed to find metric regex:^{{name}}(.sum|.avg)$") or 1)
print({text!r})"""
    in_place_of(monkeypatch, tmp_path, "ncu", script)
    first, _ = counters.collect(["subject"], scratch=tmp_path)
    assert (first["time_ns"], "dram_bytes" in first, "l2_hit_pct" in first) == (10, False, False)


@pytest.mark.torch
def test_layers_that_take_too_long_or_crash_are_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (slow,) = self_test.torch_layers("cpu", self_test.Clock(0.5), quick=True)
    assert (slow["name"], slow["ok"], slow["unfinished"]) == ("torch", False, True)
    crash = """import json, os
print(json.dumps({"begun": "torch"}), json.dumps({"name": "torch", "ok": True, "detail": "", "seconds": 1}), sep="\\n")
print(json.dumps({"begun": "Triton"}), flush=True)
os.abort()"""
    (tmp_path / "layers.py").write_text(crash)
    monkeypatch.setattr(self_test, "LAYERS", tmp_path / "layers.py")
    fine, crashed = self_test.torch_layers("cuda", self_test.Clock(30), quick=False)
    assert (fine["name"], fine["ok"]) == ("torch", True)
    assert (crashed["name"], crashed["ok"], crashed["unfinished"]) == ("Triton", False, False)
    assert "exit code -6" in crashed["detail"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("cudaErrorNoKernelImageForDevice: no kernel image is available for execution on the device", "architecture"),
        ("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version", "older than the"),
        (
            "cudaErrorUnsupportedPtxVersion: the provided PTX was compiled with an unsupported toolchain.",
            "older than the",
        ),
        ("cudaErrorNoDevice: no CUDA-capable device is detected", "no GPU is visible"),
        ("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable", "another process"),
        ("cudaErrorSystemDriverMismatch: system has unsupported display driver / cuda driver combination", "differ"),
        ("out of memory", "filled the GPU's memory"),
        ("cudaErrorIllegalAddress: an illegal memory access was encountered", "encountered"),
    ],
)
def test_what_a_failed_launch_means(tmp_path: Path, said: str, words: str) -> None:
    program = tmp_path / "probe"
    program.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n".replace("GPU's", "GPU"))
    program.chmod(0o755)
    ok, detail = self_checks.launch(self_checks.Probe(program, "sm_90"), timeout_s=20)
    assert not ok and detail.startswith(said[:40]) and words in detail


def test_a_program_that_hangs_is_a_layer_that_was_not_known(tmp_path: Path) -> None:
    program = tmp_path / "probe"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    ok, detail = self_checks.launch(self_checks.Probe(program, "sm_90"), timeout_s=0.5)
    assert not ok and self_checks.TOO_LONG in detail


DRIVER = """
extern "C" int cuInit(unsigned) { return INIT; }
extern "C" int cuDriverGetVersion(int* version) { *version = 12040; return 0; }
extern "C" int cuDeviceGetCount(int* count) { *count = COUNT; return 0; }
extern "C" int cuGetErrorName(int, const char** name) { *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return 0; }
extern "C" int cuDeviceGet(int* handle, int) { *handle = 0; return 0; }
extern "C" int cuDeviceGetName(char* name, int, int) { name[0] = 'H'; name[1] = 0; return 0; }
"""


@pytest.mark.parametrize(
    ("init", "count", "words"),
    [
        (803, 1, "cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (0, 0, "there is no device"),
        (0, 2, "H and 1 more"),
    ],
)
def test_a_driver_that_does_not_start_shows_nothing_or_is_older_than_the_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: int, count: int, words: str
) -> None:
    source, library = tmp_path / "driver.cpp", tmp_path / "libcuda.so.1"
    source.write_text(DRIVER.replace("INIT", str(init)).replace("COUNT", str(count)))
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    monkeypatch.setattr(self_checks, "LIBCUDA", str(library))
    ok, detail = self_checks.driver()
    assert (ok, words in detail) == (init == 0 and count > 0, True), detail
    assert self_checks.older_driver("13.0") == "the driver is for CUDA 12.4, older than the toolkit 13.0"
    assert self_checks.older_driver("12.8") == ""


def test_the_profilers_layers_by_what_the_tools_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = self_checks.Probe(tmp_path / "probe", "sm_90")
    in_place_of(monkeypatch, tmp_path, "ncu", "print('sm__cycles_elapsed.max cycle 1,234')")
    assert self_checks.counters(probe, timeout_s=20)[0]
    in_place_of(monkeypatch, tmp_path, "ncu", "print('==ERROR== ERR_NVGPUCTRPERM - no permission'); sys.exit(1)")
    assert self_checks.counters(probe, timeout_s=20) == (False, "ncu may not read the counters (ERR_NVGPUCTRPERM)")
    bad = "bad = sys.argv[-1] == 'bad'; print('========= Invalid __global__ write of size 4 bytes' if bad else '')"
    in_place_of(monkeypatch, tmp_path, "compute-sanitizer", f"{bad}; sys.exit(1 if bad else 0)")
    assert self_checks.sanitizer(probe, timeout_s=20)[0]
    in_place_of(
        monkeypatch, tmp_path, "compute-sanitizer", "print('========= Error: Device not supported'); sys.exit(1)"
    )
    ok, detail = self_checks.sanitizer(probe, timeout_s=20)
    assert not ok and "Device not supported" in detail


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
