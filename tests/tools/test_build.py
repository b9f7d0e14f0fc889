"""build.py and warm_cache.py as they are called: what is built, what is refused, how failures are explained."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from building import toolchain

from agent.judging.reports import BuildReport

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tools" / "build.py"
KERNEL = """#include <cstdint>
extern "C" void double_it(const float* x, float* y, int64_t n) {
#pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) y[i] = 2.0f * x[i];
}
"""
BINDING = """#include <torch/extension.h>
#include "../binding_registry.h"
extern "C" void double_it(const float* x, float* y, int64_t n);
static torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  double_it(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
static void register_twice(pybind11::module& m) { m.def("twice", &twice); }
REGISTER_BINDING(twice, register_twice);
"""
USE = """import sys, torch
sys.path.insert(0, sys.argv[1])
import cpu_extension
x = torch.arange(1000.0)
assert torch.equal(cpu_extension.twice(x), 2 * x)
print("right")
"""


def warm_cache(folder: Path, *flags: str) -> dict[str, object]:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "warm_cache.py"), "--out", str(folder), "--target", "cpu"]
    done = subprocess.run([*argv, *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warmed cache: torch's headers are compiled once for all tests (half a gigabyte, removed afterwards)."""
    folder = tmp_path_factory.mktemp("cache")
    report = warm_cache(folder)
    assert (report["status"], report["reasons"]) == ("warm", [])
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """One build root for the module, so that an unchanged binding is compiled once; `warm` in it is the cache."""
    root = tmp_path_factory.mktemp("builds")
    (root / "warm").symlink_to(cache)
    return root


def workspace(folder: Path, **files: str) -> Path:
    (folder / "kernels").mkdir(parents=True)
    for name, text in files.items():
        (folder / "kernels" / name.replace("__", ".")).write_text(text)
    return folder


def build(folder: Path, *flags: str, root: Path, target: str = "cpu", env: dict[str, str] | None = None) -> BuildReport:
    argv = [sys.executable, "-I", str(BUILD), "--workspace", str(folder), "--target", target, "--build-root", str(root)]
    argv += ["--cache", str(root / "warm")]  # a folder that is not there means no cache
    done = subprocess.run([*argv, *flags], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return BuildReport.model_validate(json.loads(done.stdout))


def codes(report: BuildReport) -> list[str]:
    return [reason.code for reason in report.reasons]


def use(module: str) -> str:
    argv = [sys.executable, "-I", "-W", "ignore", "-c", USE, str(Path(module).parent)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.mark.torch
def test_builds_a_module_that_python_imports_and_knows_it_again(tmp_path: Path, kept: Path) -> None:
    folder = workspace(tmp_path / "a b ä", k__cpp=KERNEL, k_binding__cpp=BINDING)
    first = build(folder, root=kept)
    assert first.status == "built", first
    assert first.module is not None and first.module.endswith("cpu_extension.so")
    assert first.sources == ("kernels/k.cpp", "kernels/k_binding.cpp")
    assert use(first.module) == "right"
    again = build(folder, root=kept)
    assert (again.cached, again.module, again.sha256) == (True, first.module, first.sha256)
    objects = len(list((kept / "objects").iterdir()))
    (folder / "kernels" / "k.cpp").write_text(KERNEL + "// edited\n")
    edited = build(folder, root=kept)
    assert edited.status == "built" and not edited.cached and edited.sha256 != first.sha256
    assert len(list((kept / "objects").iterdir())) == objects + 1  # the binding's object was taken over
    assert not [path for path in kept.iterdir() if path.name.startswith(".")]  # nothing half-made stays behind


def test_a_warmed_cache_is_whole_and_is_left_alone(cache: Path) -> None:
    (entry,) = (cache / "build").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in entry.iterdir() if path.is_file()}
    assert {"prelude.h", "prelude.h.gch", "binding.o"} <= set(before)
    assert warm_cache(cache)["status"] == "warm"
    assert {path.name: path.stat().st_mtime_ns for path in entry.iterdir() if path.is_file()} == before
    assert [path.name for path in (cache / "build").iterdir()] == [entry.name]


@pytest.mark.torch
def test_without_a_cache_the_result_is_the_same(tmp_path: Path) -> None:
    folder = workspace(tmp_path / "w", k__cpp=KERNEL, k_binding__cpp=BINDING)
    report = build(folder, root=tmp_path / "builds")
    assert report.module is not None and use(report.module) == "right"


@pytest.mark.torch
def test_a_changed_header_is_noticed(tmp_path: Path, kept: Path) -> None:
    kernel = KERNEL.replace("2.0f", "FACTOR").replace("#include <cstdint>", '#include <cstdint>\n#include "factor.h"')
    files = {"k__cpp": kernel, "k_binding__cpp": BINDING}
    folder = workspace(tmp_path / "w", factor__h="#define FACTOR 3.0f\n", **files)
    wrong = build(folder, root=kept)
    assert wrong.module is not None and use(wrong.module) == ""
    (folder / "kernels" / "factor.h").write_text("#define FACTOR 2.0f\n")
    right = build(folder, root=kept)
    assert right.module is not None and use(right.module) == "right"


@pytest.mark.torch
def test_planted_files_are_not_taken(tmp_path: Path, kept: Path) -> None:
    folder = workspace(tmp_path / "w", k__cpp=KERNEL, k_binding__cpp=BINDING, torch__py="raise SystemExit\n")
    for planted in ("cpu_extension.so", "k.o", "k.cpp.o", "binding.o"):
        (folder / "kernels" / planted).write_bytes(b"\x7fELF planted")
        (folder / planted).write_bytes(b"\x7fELF planted")
    (folder / "binding.cpp").write_text("#error planted")
    (folder / "binding_registry.h").write_text("#error planted")
    report = build(folder, root=kept)
    assert report.module is not None and use(report.module) == "right"
    named = {entry.file for entry in report.diagnostics if entry.message.startswith("ignored")}
    assert {"kernels/torch.py", "kernels/cpu_extension.so", "kernels/k.o"} <= named


@pytest.mark.torch
def test_locks_and_folders_in_the_way_do_not_matter(tmp_path: Path, kept: Path) -> None:
    folder = workspace(tmp_path / "w", k__cpp=KERNEL + "// in the way\n", k_binding__cpp=BINDING)
    sha256 = build(folder, root=kept).sha256
    root = tmp_path / "root"
    (root / sha256).mkdir(parents=True)
    (root / "warm").symlink_to(kept / "warm")
    for place in (root, root / sha256):
        (place / "lock").write_text("")
        (place / "cpu_extension.so.lock").write_text("")
    for _ in range(2):
        report = build(folder, root=root)
        assert report.module is not None and use(report.module) == "right"


@pytest.mark.torch
def test_fresh_does_not_return_a_planted_build(tmp_path: Path, kept: Path) -> None:
    folder = workspace(tmp_path / "w", k__cpp=KERNEL + "// fresh\n", k_binding__cpp=BINDING)
    made = build(folder, root=kept)
    assert made.module is not None
    Path(made.module).write_bytes(b"planted")
    report = build(folder, "--fresh", root=kept)
    assert report.module is not None and report.module != made.module and not report.cached
    assert use(report.module) == "right"


@pytest.mark.torch
def test_the_environment_does_not_reach_the_compiler(tmp_path: Path, kept: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "cstdint").write_text("#error from the environment\n")
    (bad / "g++").write_text("#!/bin/sh\nexit 7\n")
    (bad / "g++").chmod(0o755)
    folder = workspace(tmp_path / "w", k__cpp=KERNEL + "// environment\n", k_binding__cpp=BINDING)
    env = dict(os.environ) | {"CPATH": str(bad), "CPLUS_INCLUDE_PATH": str(bad), "PATH": str(bad), "CXX": "/bin/false"}
    assert build(folder, root=kept, env=env).status == "built"


@pytest.mark.torch
def test_two_builds_of_the_same_at_once(tmp_path: Path, kept: Path) -> None:
    folder = workspace(tmp_path / "w", k__cpp=KERNEL + "// both\n", k_binding__cpp=BINDING)
    reports: list[BuildReport] = []
    threads = [threading.Thread(target=lambda: reports.append(build(folder, root=kept))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [use(report.module or "") for report in reports] == ["right", "right"]


@pytest.mark.parametrize("kind", ["outside", "folder", "fifo", "dangling"])
def test_only_regular_files_are_read(tmp_path: Path, kept: Path, kind: str) -> None:
    folder = workspace(tmp_path / "w", k_binding__cpp=BINDING)
    secret = tmp_path / "secret.cpp"
    secret.write_text(BINDING)
    if kind == "outside":
        (folder / "kernels" / "k.cpp").symlink_to(secret)
    elif kind == "dangling":
        (folder / "kernels" / "k.cpp").symlink_to("/nonexistent/k.cpp")
    elif kind == "fifo":
        os.mkfifo(folder / "kernels" / "k.cpp")
    else:
        (folder / "kernels").rename(tmp_path / "elsewhere")
        (folder / "kernels").symlink_to(tmp_path / "elsewhere")
    report = build(folder, root=kept)
    assert report.status == "failed"
    assert codes(report) == ["build.not_regular" if kind == "fifo" else "build.symlink"]


def test_size_and_count_are_capped(tmp_path: Path, kept: Path) -> None:
    folder = workspace(tmp_path / "big", k_binding__cpp=BINDING)
    with (folder / "kernels" / "huge.cpp").open("wb") as file:
        file.truncate(1 << 40)
    assert codes(build(folder, root=kept)) == ["build.too_large"]
    many = workspace(tmp_path / "many", **{f"k{index}__cpp": KERNEL for index in range(65)})
    assert codes(build(many, root=kept)) == ["build.too_large"]


def test_nothing_to_build(tmp_path: Path, kept: Path) -> None:
    (tmp_path / "none").mkdir()
    for folder in (tmp_path / "none", workspace(tmp_path / "empty"), workspace(tmp_path / "cuda", k__cu="x")):
        report = build(folder, root=kept)
        assert (report.status, codes(report)) == ("no_sources", ["build.no_sources"])


def test_bindings_are_checked_before_anything_is_compiled(tmp_path: Path, kept: Path) -> None:
    assert codes(build(workspace(tmp_path / "a", k__cpp=KERNEL), root=kept)) == ["build.no_binding"]
    own = BINDING + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
    assert codes(build(workspace(tmp_path / "b", k__cpp=KERNEL, k_binding__cpp=own), root=kept)) == ["build.own_module"]


@pytest.mark.torch
def test_one_name_registered_twice(tmp_path: Path, kept: Path) -> None:
    files = {
        "k__cpp": KERNEL,
        "k_binding__cpp": BINDING,
        "z_binding__cpp": BINDING.replace("&twice", '&twice, "again"'),
    }
    report = build(workspace(tmp_path / "w", **files), root=kept)
    assert codes(report) == ["build.duplicate_binding"]
    assert "twice" in report.reasons[0].detail


@pytest.mark.torch
def test_a_function_named_like_one_of_libc_is_explained(tmp_path: Path, kept: Path) -> None:
    text = BINDING.replace("Tensor twice(", "Tensor select(").replace('"twice", &twice', '"select", &select')
    report = build(workspace(tmp_path / "w", k__cpp=KERNEL, k_binding__cpp="#include <unistd.h>\n" + text), root=kept)
    assert codes(report)[0] == "build.name_collision"
    assert "kernels/k_binding.cpp:10" in report.reasons[0].detail


@pytest.mark.torch
def test_a_missing_definition_is_found_at_build_time(tmp_path: Path, kept: Path) -> None:
    cpp_linkage = KERNEL.replace('extern "C" ', "")
    report = build(workspace(tmp_path / "w", k__cpp=cpp_linkage, k_binding__cpp=BINDING), root=kept)
    assert report.status == "failed" and codes(report) == ["build.undefined_symbol"]
    assert "double_it" in report.reasons[0].detail


@pytest.mark.torch
def test_a_compile_error_has_its_place(tmp_path: Path, kept: Path) -> None:
    broken = KERNEL.replace("y[i] = 2.0f", "y[i] = missing")
    report = build(workspace(tmp_path / "w", k__cpp=broken, k_binding__cpp=BINDING), root=kept)
    assert codes(report) == ["build.compile_error"]
    first = report.diagnostics[0]
    assert (first.file, first.line, first.severity) == ("kernels/k.cpp", 4, "error")
    assert first.column > 10 and "missing" in first.message and "missing" in report.log_tail


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("device", '#include "/dev/zero"\n'),
        (
            "templates",
            "template <long N> struct A { A<N + 1> a, b; };\ntemplate <long N> struct B {\n"
            "  static constexpr long v = B<2 * N>::v + B<2 * N + 1>::v; };\nlong x = B<1>::v;\n",
        ),
        ("loop", "constexpr long spin() { long n = 0; for (;;) n ^= 1; return n; }\nstatic_assert(spin() == 0);\n"),
        ("assembly", 'asm(".fill 8000000000, 1, 0");\n'),
    ],
)
def test_compile_bombs_end_with_a_reason(tmp_path: Path, kept: Path, name: str, text: str) -> None:
    folder = workspace(tmp_path / name, bomb__cpp=text, k__cpp=KERNEL, k_binding__cpp=BINDING)
    report = build(folder, "--timeout-s", "15", root=kept)
    assert report.status == "failed"
    assert set(codes(report)) <= {"build.timeout", "build.memory", "build.output_size", "build.compile_error"}
    assert "kernels/bomb.cpp" in report.reasons[0].detail
    assert len(report.log_tail) <= 8000 and report.seconds < 60


@pytest.mark.skipif(not Path("/usr/local/cuda/bin/nvcc").exists(), reason="no nvcc on this machine")
@pytest.mark.torch
def test_a_cuda_source_compiles_without_a_gpu(tmp_path: Path) -> None:
    kernel = """#include "../launcher.h"
__global__ void fill_kernel(float* o, int n) {
  __shared__ float s[64];
  s[threadIdx.x] = 1.0f;
  __syncthreads();
  if (threadIdx.x < n) o[threadIdx.x] = s[63 - threadIdx.x];
}
static cudaError_t fill(float* o, int n, cudaStream_t stream) {
  fill_kernel<<<1, 64, 0, stream>>>(o, n);
  return cudaPeekAtLastError();
}
REGISTER_LAUNCHER(fill);
"""
    folder, root = workspace(tmp_path / "w", fill__cu=kernel), tmp_path / "builds"
    report = build(folder, "--arch", "sm_90", root=root, target="cuda")
    assert report.status == "built", report
    assert report.module is not None and report.module.endswith("cuda_extension.so")
    (found,) = report.kernels
    assert (found.source, found.kernel) == ("kernels/fill.cu", "fill_kernel(float*, int)")
    assert (found.arch, found.shared_bytes, found.barriers, found.spill_load_bytes) == ("sm_90", 256, 1, 0)
    assert 0 < found.registers < 64 and "ptxas" not in report.log_tail
    again = build(folder, "--arch", "sm_90", root=root, target="cuda")
    assert again.cached and again.kernels == report.kernels
    (folder / "kernels" / "fill.cu").write_text(kernel.replace("< n)", "< m)"))
    broken = build(folder, "--arch", "sm_90", root=root, target="cuda")
    assert [(e.file, e.line) for e in broken.diagnostics] == [("kernels/fill.cu", 6)]
    unknown = build(folder, "--arch", "sm_20", root=root, target="cuda")
    assert (unknown.status, codes(unknown)) == ("error", ["build.toolchain"])


def test_a_machine_without_a_toolkit_is_no_fault_of_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """What build.py reports as an error, like the architecture above, and not as a failure of what is built."""
    monkeypatch.setattr(toolchain, "_which", lambda name: None if name == "nvcc" else shutil.which(name))
    with pytest.raises(toolchain.ToolchainError, match="nvcc is not installed"):
        toolchain.find_toolchain("cuda", arch="sm_90")


LAUNCHERS = """#include "../launcher.h"
static int scale(const float* x, float* y, int64_t n, double by, short add, bool fail) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * by + add;
  return fail ? 7 : 0;
}
REGISTER_LAUNCHER(scale);
static void given(const void* x, const float* z, int* out) { out[0] = (x != nullptr) + 2 * (z != nullptr); }
REGISTER_LAUNCHER(given);
"""
CALLS = """import json, sys, torch
sys.path.insert(0, sys.argv[1])
import cpu_extension as e
x, y, n = torch.arange(10.0), torch.empty(10), torch.zeros(1, dtype=torch.int32)
assert e.scale(x, y, 10, 2, 3, False) is None and torch.equal(y, 2 * x + 3)
e.given(x, None, n)
assert n.item() == 1
said = []
for arguments in (
    (x, y, 10, 2.0, 3, True), (x, y.double(), 10, 2.0, 3, False), (x, 5, 10, 2.0, 3, False),
    (x, y, 10.5, 2.0, 3, False),
    (x, y, 10, 2.0, 40000, False), (x, y, 10, "2", 3, False), (x, y), (x, y, 10, 2.0, 3, False, 9),
    (x, y.to("meta"), 10, 2.0, 3, False),
):
    try:
        e.scale(*arguments)
        said.append("")
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""


@pytest.mark.torch
def test_a_launcher_is_called_with_what_it_takes_and_says_what_is_wrong(tmp_path: Path, kept: Path) -> None:
    report = build(workspace(tmp_path / "w", s__cpp=LAUNCHERS), root=kept)
    assert report.module is not None, report
    argv = [sys.executable, "-I", "-W", "ignore", "-c", CALLS, str(Path(report.module).parent)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "RuntimeError: scale: error code 7",
        "TypeError: scale: argument 2 must be a float32 tensor, not Double",
        "TypeError: scale: argument 2 must be a tensor or None",
        "TypeError: scale: argument 3 must be an integer",
        "OverflowError: scale: argument 5 does not fit into 16 bits; let the parameter be int64_t",
        "TypeError: scale: argument 4 must be a number",
        "TypeError: scale: too few arguments: 2",
        "TypeError: scale: takes 6 arguments, 7 were given",
        "TypeError: scale: argument 2 is a tensor on meta, not on the CPU",
    ]


@pytest.mark.torch
def test_a_launcher_registered_twice(tmp_path: Path, kept: Path) -> None:
    twice = workspace(tmp_path / "w", a__cpp=LAUNCHERS, b__cpp=LAUNCHERS.replace("n; ++i", "n; i++"))
    report = build(twice, root=kept)
    assert codes(report) == ["build.duplicate_binding"] * 2


@pytest.mark.torch
def test_objects_of_a_warmed_cache_are_taken_by_fresh_builds_and_none_other(tmp_path: Path, cache: Path) -> None:
    root = tmp_path / "builds"
    root.mkdir()
    (root / "warm").symlink_to(cache)
    warned = LAUNCHERS + "// kept, c10/\n#warning shown again\n"
    folder = workspace(tmp_path / "w", s__cpp=warned)
    first = build(folder, "--fresh", root=root)
    assert (first.objects.compiled, first.objects.taken) == (1, 0)
    assert not (root / "objects").exists()
    wanted, out = ("--workspace", str(folder), "--cache", str(cache)), tmp_path / "out"
    named = warm_cache(out, *wanted, "--names")
    assert named["status"] == "warm" and list(named["objects"]) == ["kernels/s.cpp"] and not out.exists()
    assert warm_cache(out, *wanted)["objects"] == named["objects"]
    (name,) = named["objects"].values()
    kept_there = cache / "build" / named["entry"] / "objects"
    shutil.copytree(out, kept_there)
    assert (kept_there / name).is_file()
    second = build(folder, "--fresh", root=root)
    assert (second.status, second.objects.compiled, second.objects.taken) == ("built", 0, 1)
    assert second.diagnostics == first.diagnostics and "shown again" in second.diagnostics[0].message
    assert warm_cache(out, *wanted, "--names")["objects"] == {}
    (folder / "kernels" / "s.cpp").write_text(warned + "// edited\n")
    assert build(folder, "--fresh", root=root).objects.compiled == 1
    (folder / "kernels" / "s.cpp").write_text("broken c10/")
    assert warm_cache(out, *wanted)["status"] == "warm"  # what does not compile is the judge's matter


@pytest.mark.torch
def test_a_source_that_another_includes_is_part_of_it(tmp_path: Path, kept: Path) -> None:
    launcher = '#include "../launcher.h"\n#include "body.cpp"\nREGISTER_LAUNCHER(body);\n'
    body = "static void body(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = x[i] * 2; }\n"
    folder = workspace(tmp_path / "w", body__cpp=body, launcher__cpp=launcher)
    assert build(folder, root=kept).objects.compiled == 2
    (folder / "kernels" / "body.cpp").write_text(body.replace("* 2", "* 3"))
    report = build(folder, root=kept)
    assert (report.status, report.objects.compiled) == ("built", 2)


@pytest.mark.bubblewrap
def test_builds_need_room_where_they_are_kept_and_nowhere_else(tmp_path: Path) -> None:
    """$AGENT_BUILDS is full; the folder for temporary files is not."""
    folder, small = workspace(tmp_path / "w", scale__cpp="REGISTER_LAUNCHER"), tmp_path / "small"
    small.mkdir()
    bwrap = [
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--size",
        "1000000",
        "--tmpfs",
        str(small),
    ]
    argv = [sys.executable, "-I", str(BUILD), "--workspace", str(folder), "--target", "cpu"]
    environment = {**os.environ, "AGENT_BUILDS": str(small)}
    done = subprocess.run([*bwrap, *argv], capture_output=True, text=True, timeout=60, env=environment)
    report = BuildReport.model_validate_json(done.stdout)
    assert report.status == "error", report
    assert f"{small} has 0 MB left" in report.reasons[0].detail
