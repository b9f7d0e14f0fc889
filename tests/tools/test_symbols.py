"""symbols.py: the ELF reader against nm, and what it says about modules that torch, BLAS or the system work for."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def symbols(module: Path, *flags: str) -> dict[str, Any]:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "symbols.py"), str(module), *flags]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def shared(folder: Path, text: str, *flags: str) -> Path:
    """A shared object whose unresolved names are left to the loader."""
    (folder / "s.cpp").write_text(text)
    module = folder / "s.so"
    subprocess.run(
        ["g++", "-O1", "-shared", "-fPIC", "-std=c++17", str(folder / "s.cpp"), "-o", str(module), *flags], check=True
    )
    return module


def codes(report: dict[str, Any]) -> list[str]:
    return [reason["code"] for reason in report["reasons"]]


HONEST = """#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>
extern "C" float run(float* x, int n) {
  std::vector<float> v(n);
  std::string s(n, 'x');
  if (n < 0) throw std::runtime_error(s);
  #pragma omp parallel for
  for (int i = 0; i < n; ++i) v[i] = std::exp(x[i]) + std::tanh(x[i]);
  std::memcpy(x, v.data(), n * sizeof(float));
  return v[0];
}
"""


def test_plain_c_and_cpp_is_clean(tmp_path: Path) -> None:
    report = symbols(shared(tmp_path, HONEST, "-fopenmp"))
    assert (report["status"], report["reasons"]) == ("clean", [])
    assert "libgomp.so.1" in report["needed"] and "GOMP_parallel" in report["symbols"]


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_the_reader_agrees_with_nm(tmp_path: Path) -> None:
    module = shared(tmp_path, HONEST, "-fopenmp")
    listed = subprocess.run(["nm", "-D", "-u", str(module)], capture_output=True, text=True, check=True).stdout
    assert symbols(module)["symbols"] == sorted({line.split()[-1].partition("@")[0] for line in listed.splitlines()})


def operator(name: str) -> str:
    space = f"namespace at {{ struct T; namespace _ops {{ struct {name} {{ static void call(T&); }}; }} }}"
    return f"{space} void f(at::T& t) {{ at::_ops::{name}::call(t); }}"


DECLARED = {
    "policy.torch_op": [
        operator("matmul"),
        operator("view_copy"),
        operator("mul__Scalar"),
        "namespace at { namespace native { void mm(); } } void f() { at::native::mm(); }",
        "namespace at { namespace cpu { void softmax(); } } void f() { at::cpu::softmax(); }",
        "namespace torch { namespace nn { void go(); } } void f() { torch::nn::go(); }",
        "namespace c10 { struct Dispatcher { static void singleton(); }; } void f() { c10::Dispatcher::singleton(); }",
    ],
    "policy.vendor_library": [
        'extern "C" void cblas_sgemm(); void f() { cblas_sgemm(); }',
        'extern "C" void sgemm_(); void f() { sgemm_(); }',
        'extern "C" void vsExp(); void f() { vsExp(); }',
        'extern "C" void dnnl_sgemm(); void f() { dnnl_sgemm(); }',
        'extern "C" void cublasSgemm_v2(); void f() { cublasSgemm_v2(); }',
    ],
    "policy.system_call": [
        '#include <dlfcn.h>\nvoid* f() { return dlsym(nullptr, "x"); }',
        '#include <cstdlib>\nint f() { return system("true"); }',
        "#include <unistd.h>\nint f() { return fork(); }",
        "#include <unistd.h>\nvoid f() { _exit(0); }",
        "#include <unistd.h>\n#include <sys/syscall.h>\nlong f() { return syscall(SYS_getpid); }",
    ],
    "policy.thread": ["#include <thread>\nvoid f(void (*g)()) { std::thread(g).detach(); }"],
    "policy.file_access": [
        '#include <fstream>\nint f() { std::ifstream s("/x"); int n; s >> n; return n; }',
        '#include <cstdio>\nvoid* f() { return fopen("/x", "r"); }',
    ],
    "tamper.interpreter": [
        'extern "C" int PyRun_SimpleString(const char*); int f() { return PyRun_SimpleString("x"); }'
    ],
}


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in DECLARED.items() for text in texts])
def test_what_a_module_may_not_take_from_elsewhere(tmp_path: Path, code: str, text: str) -> None:
    assert set(codes(symbols(shared(tmp_path, text)))) == {code}


def test_allocation_views_and_metadata_are_allowed(tmp_path: Path) -> None:
    names = ("empty_memory_format", "empty_like", "view", "transpose_int", "slice_Tensor", "fill__Scalar", "zeros")
    structs = "".join(f"struct {name} {{ static void call(); }};" for name in names)
    calls = "".join(f"at::_ops::{name}::call();" for name in names)
    text = f"namespace at {{ namespace _ops {{ {structs} }}"
    text += " struct TensorBase { void sizes(); }; int get_num_threads(); }"
    text += f"void f(at::TensorBase& t) {{ {calls} t.sizes(); at::get_num_threads(); }}"
    assert codes(symbols(shared(tmp_path, text))) == []


def test_policy_and_target_decide(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    torch_op = shared(folders[0], DECLARED["policy.torch_op"][0])
    assert codes(symbols(torch_op, "--policy", "open")) == []
    cublas = shared(folders[1], DECLARED["policy.vendor_library"][-1])
    assert codes(symbols(cublas, "--target", "cuda")) == []


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    good = shared(tmp_path, HONEST, "-fopenmp").read_bytes()
    damaged = {
        "empty": b"",
        "text": b"not an ELF file at all, but long enough to be one",
        "cut": good[: len(good) // 2],
        "header": good[:64],
        "offset": good[:0x28] + b"\xff" * 8 + good[0x30:],
    }
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        report = symbols(tmp_path / name)
        assert (report["status"], codes(report)) == ("error", ["build.not_a_module"]), name
    assert symbols(tmp_path / "missing")["status"] == "error"


BINDING = """#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
#include "../binding_registry.h"
static torch::Tensor relay(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat32, "contiguous float32 expected, got ", x.sizes());
  torch::Tensor out = torch::empty_like(x), more = torch::empty({x.size(0), 3}, x.options().dtype(torch::kInt64));
  float* p = out.data_ptr<float>();
#pragma omp parallel for
  for (int64_t i = 0; i < x.numel(); ++i) p[i] = x.data_ptr<float>()[i];
  more.data_ptr<int64_t>()[0] = out.stride(0);
  return out.view({-1}).transpose(0, 0).narrow(0, 0, 1);
}
static torch::Tensor borrowed(torch::Tensor x) { return at::softmax(at::matmul(x, x), -1); }
static void register_relay(pybind11::module& m) { m.def("relay", &relay).def("borrowed", &borrowed); }
REGISTER_BINDING(relay, register_relay);
"""


@pytest.mark.torch
def test_a_real_extension_shows_what_torch_computes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "w" / "kernels").mkdir(parents=True)
    (tmp_path / "w" / "kernels" / "relay.cpp").write_text(BINDING)
    argv = [sys.executable, "-I", str(ROOT / "tools" / "build.py"), "--target", "cpu"]
    argv += ["--workspace", str(tmp_path / "w"), "--build-root", str(tmp_path / "builds")]
    built = json.loads(subprocess.run(argv, capture_output=True, text=True, timeout=300).stdout)
    assert built["status"] == "built", built
    named = {reason["detail"].split()[3].rstrip(":") for reason in symbols(Path(built["module"]))["reasons"]}
    assert named == {"at::_ops::softmax_int", "at::_ops::matmul"}
