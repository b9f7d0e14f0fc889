"""scan.py as it is called: honest submissions are clean, and what the judge would reject is named with its line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "corpus"
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport cpu_extension\n"
CLASS = """class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
"""
HONEST = (
    HEAD
    + CLASS
    + """        self.width = torch.tensor(4.0).exp().mul(2)
    def forward(self, x, flag=None):
        rows, width = x.shape[:2]
        out = torch.empty_like(x)
        half = x.new_empty(rows * width // 2)
        if flag is None and x.dtype == torch.float32 and x.is_contiguous():
            cpu_extension.scale(x.view(rows, -1), self.fc.weight, out.transpose(0, 1), half, -1, width * 2)
        return cpu_extension.softmax(out, self.fc.bias).reshape(rows, width)
"""
)
KERNEL = """#include <cmath>
// at::matmul and dlopen( in a comment, and "system(" in a string
static torch::Tensor scale(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "torch::softmax( is only text");
  torch::Tensor out = torch::empty(x.sizes(), x.options().dtype(torch::kFloat32));
  at::parallel_for(0, x.numel(), 1, [&](int64_t a, int64_t b) { std::exp(1.0f); });
  return out.view({-1});
}
"""


def scan(folder: Path, *, policy: str = "strict", target: str = "cpu") -> list[dict[str, str]]:
    argv = [sys.executable, "-I", str(ROOT / "tools" / "scan.py"), "--workspace", str(folder)]
    done = subprocess.run([*argv, "--target", target, "--policy", policy], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["tool"] == "scan" and report["schema_version"] == 1
    assert report["status"] == ("findings" if report["reasons"] else "clean")
    return list(report["reasons"])


def submission(folder: Path, model: str = HONEST, kernel: str = KERNEL) -> Path:
    (folder / "kernels").mkdir(parents=True)
    (folder / "model_new.py").write_text(model)
    (folder / "kernels" / "k.cpp").write_text(kernel)
    return folder


def cases(expect: str) -> list[Path]:
    found = []
    for case in sorted(CORPUS.glob("*/case.json")):
        facts = json.loads(case.read_text())
        if facts["expect"] == expect and facts["target"] in ("cpu", "any"):
            found.append(case.parent)
    return found


def test_an_honest_submission_is_clean(tmp_path: Path) -> None:
    assert scan(submission(tmp_path / "w")) == []


def test_honest_controls_are_clean() -> None:
    controls = cases("accept")
    assert len(controls) >= 5
    for case in controls:
        policy = json.loads((case / "case.json").read_text())["policy"]
        # The text does not say whether a flag is set to what is in force anyway; the judge sees it.
        told = {"numeric.precision_flag"} if case.name == "honest-precision-flags-in-force" else set()
        assert {finding["code"] for finding in scan(case, policy=policy)} <= told, case.name


FORWARD = {
    "policy.torch_op": [
        "return F.gelu(x)",
        "return torch.matmul(x, x)",
        "return x @ x",
        "return x * 2",
        "return -x",
        "return self.fc(x)",
        "return x.softmax(-1)",
        "y = cpu_extension.f(x)\n        y += 1\n        return y",
        "return torch.ops.aten.mm(x, x)",
    ],
    "policy.fallback": [
        "try:\n            return cpu_extension.f(x)\n        except Exception:\n            return None"
    ],
    "policy.keeps_state": ["self.last = x\n        return x", "global LAST\n        return x"],
    "policy.file_access": ["open('/tmp/x')\n        return x"],
    "policy.dynamic_code": ["return eval('x')"],
}


@pytest.mark.parametrize(("code", "body"), [(code, body) for code, bodies in FORWARD.items() for body in bodies])
def test_what_forward_may_not_do(tmp_path: Path, code: str, body: str) -> None:
    text = HEAD + CLASS + f"    def forward(self, x):\n        {body}\n"
    findings = scan(submission(tmp_path / "w", model=text))
    assert code in [finding["code"] for finding in findings]
    first = next(finding for finding in findings if finding["code"] == code)
    assert first["detail"].startswith("model_new.py line ") and int(first["detail"].split()[2].rstrip(":")) >= 10


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("policy.imports_reference", "from model import Model"),
        ("policy.imports_reference", "import model as m"),
        ("policy.import", "import ctypes"),
        ("policy.import", "from gc import get_objects"),
        ("policy.import", "import os"),
        ("tamper.patch", "torch.testing.assert_close = None"),
        ("tamper.patch", "setattr(torch, 'equal', None)"),
        ("tamper.patch", "lib = torch.library.Library('aten', 'IMPL')"),
        ("tamper.patch", "torch.equal.__code__ = None"),
        ("tamper.environment", "torch._dynamo.config.disable = True"),
        ("tamper.environment", "torch.compiler.set_stance('force_eager')"),
        ("numeric.precision_flag", "torch.backends.cuda.matmul.allow_tf32 = True"),
        ("numeric.precision_flag", "torch.set_float32_matmul_precision('medium')"),
        ("tamper.tensor_subclass", "class T(torch.Tensor): pass"),
        ("tamper.torch_internals", "torch._C._set_grad_enabled(False)"),
    ],
)
def test_what_no_line_may_do(tmp_path: Path, code: str, line: str) -> None:
    findings = scan(submission(tmp_path / "w", model=line.join(["", "\n"]) + HONEST.replace(HEAD, HEAD + line + "\n")))
    assert code in [finding["code"] for finding in findings]


NATIVE = {
    "policy.torch_op": [
        "auto y = at::softmax(x, -1);",
        "x.mul_(2);",
        "torch::nn::functional::gelu(x);",
        "at::native::mm(x);",
    ],
    "policy.vendor_library": [
        "cblas_sgemm(a);",
        "sgemm_(a);",
        "dnnl_sgemm(a);",
        "Sleef_expf16_u10(a);",
        "mkl_somatcopy(a);",
    ],
    "policy.keeps_state": ["static torch::Tensor kept;", "static thread_local at::Tensor kept = x;"],
    "policy.system_call": ['dlopen("x", 1);', 'system("true");', "if (fork()) {}", "mprotect(a, b, c);"],
    "policy.thread": ["std::thread t(f); t.detach();", "auto f = std::async(g);", "pthread_create(&a, b, c, d);"],
    "policy.file_access": ['std::ifstream f("/x");', 'fopen("x", "r");', 'auto p = "/proc/self/mem";'],
    "tamper.load_time": ["__attribute__((constructor)) static void f();"],
    "tamper.process": ["_exit(0);", "std::exit(0);"],
    "tamper.interpreter": ['PyRun_SimpleString("x");', 'pybind11::module_::import("torch");'],
}


@pytest.mark.parametrize(("code", "line"), [(code, line) for code, lines in NATIVE.items() for line in lines])
def test_what_a_source_may_not_do(tmp_path: Path, code: str, line: str) -> None:
    findings = scan(submission(tmp_path / "w", kernel=f"/* a\n comment */\n{line}\n"))
    assert (code, "kernels/k.cpp line 3") in [(f["code"], f["detail"].split(":")[0]) for f in findings]


def test_joined_threads_and_open_policy(tmp_path: Path) -> None:
    assert scan(submission(tmp_path / "a", kernel="std::thread t(f);\nt.join();\n")) == []
    folder = submission(
        tmp_path / "b", kernel="auto y = at::softmax(x, -1);", model=HEAD + CLASS + "    forward = F.gelu\n"
    )
    assert scan(folder, policy="open") == []
    assert scan(folder) != []


def test_cuda_allows_products_and_convolutions_only(tmp_path: Path) -> None:
    code = "cublasSgemm_v2(h);\ncudnnConvolutionForward(h);\ncudnnSoftmaxForward(h);\ncufftExecC2C(p);\n"
    findings = scan(submission(tmp_path / "w", kernel=code), target="cuda")
    assert [finding["detail"].split(":")[0][-6:] for finding in findings] == ["line 3", "line 4"]


def test_unreadable_submissions(tmp_path: Path) -> None:
    broken = submission(tmp_path / "a", model="class ModelNew(\n")
    assert [finding["code"] for finding in scan(broken)] == ["load.syntax"]
    assert [finding["code"] for finding in scan(submission(tmp_path / "b", model="x = 1\n"))] == ["load.no_model_new"]
    linked = submission(tmp_path / "c")
    (linked / "model_new.py").unlink()
    (linked / "model_new.py").symlink_to(tmp_path / "b" / "model_new.py")
    assert [finding["code"] for finding in scan(linked)] == ["load.no_model_new"]
    (linked / "model_new.py").unlink()
    os.mkfifo(linked / "model_new.py")
    assert [finding["code"] for finding in scan(linked)] == ["load.no_model_new"]
