"""The skill: a valid Agent Skill, links that lead somewhere, reason codes that exist, snippets that are right."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import skills_ref

ROOT = Path(__file__).resolve().parent.parent
SKILL = ROOT / "skills" / "cuda-kernel-optimization"
TEXT = (SKILL / "SKILL.md").read_text(encoding="utf-8")
REFERENCES = sorted((SKILL / "references").glob("*.md"))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.S | re.M)


def test_it_is_a_valid_agent_skill() -> None:
    assert skills_ref.validate(SKILL) == []
    properties = skills_ref.read_properties(SKILL)
    assert properties.name == SKILL.name and "model.py" in properties.description


def test_the_body_is_short_and_the_short_cut_leads_to_it() -> None:
    assert TEXT.count("\n") < 500 and len(TEXT) < 20_000
    link = ROOT / "skills" / "SKILL.md"
    assert link.is_symlink() and not link.readlink().is_absolute()
    assert link.read_text(encoding="utf-8") == TEXT


def test_every_reference_is_named_and_every_name_exists() -> None:
    named = set(re.findall(r"references/([\w-]+\.md)", TEXT))
    assert named == {path.name for path in REFERENCES} and len(named) >= 6
    for path in REFERENCES:
        for other in re.findall(r"references/([\w-]+\.md)", path.read_text(encoding="utf-8")):
            assert (SKILL / "references" / other).is_file(), f"{path.name} names {other}"


def test_explained_codes_exist_and_build_codes_are_explained() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tools").rglob("*.py"))
    known = set(re.findall(r"[\"'`]((?:build|load|numeric|replay|timing|policy|tamper|runtime)\.[a-z_]+)", sources))
    explained: set[str] = set()
    for path in REFERENCES:
        pattern = r"`((?:build|load|numeric|replay|timing|policy|tamper|runtime)\.[a-z_]+)`"
        explained |= set(re.findall(pattern, path.read_text(encoding="utf-8")))
    assert explained <= known, explained - known
    raised = set()
    for path in [ROOT / "tools" / "build.py", *(ROOT / "tools" / "building").glob("*.py")]:
        raised |= set(re.findall(r"\"(build\.[a-z_]+)\"", path.read_text(encoding="utf-8")))
    assert raised - explained == set()


def test_the_exponential_is_as_accurate_as_said(tmp_path: Path) -> None:
    (snippet,) = [b for b in blocks((SKILL / "references/cpu-kernels.md").read_text(), "cpp") if "exp_lane" in b]
    program = """#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
%s
int main() {
  double worst = 0;
  for (float x = -86.9f; x < 87.9f; x += 0.00037f) {
    const double expected = std::exp(static_cast<double>(x));
    worst = std::fmax(worst, std::fabs(exp_lane(x) - expected) / expected);
  }
  std::printf("%%g %%g %%g\\n", worst, exp_lane(-1e30f), exp_lane(1e30f));
}
"""
    (tmp_path / "p.cpp").write_text(program % snippet)
    subprocess.run(["g++", "-O2", "-march=native", "-o", str(tmp_path / "p"), str(tmp_path / "p.cpp")], check=True)
    worst, low, high = map(float, subprocess.run([tmp_path / "p"], capture_output=True, check=True).stdout.split())
    assert 0 < worst < 2e-7
    assert 0 < low < 1e-37 and 1e38 < high < float("inf")


@pytest.mark.skipif(not Path("/usr/local/cuda/bin/nvcc").exists(), reason="no nvcc on this machine")
def test_the_cuda_snippets_compile(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "launcher.h").write_text((ROOT / "tools" / "binding" / "launcher.h").read_text())
    snippets = blocks((SKILL / "references" / "cuda-kernels.md").read_text(), "cuda")
    assert len(snippets) >= 2
    (tmp_path / "kernels" / "all.cu").write_text("\n".join(snippets))
    argv = ["/usr/local/cuda/bin/nvcc", "-std=c++17", "-arch=sm_90", "-c", "all.cu", "-o", "all.o"]
    done = subprocess.run(argv, cwd=tmp_path / "kernels", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.torch
def test_the_skeleton_builds_and_is_right(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (kernel,) = blocks(TEXT, "cpp")
    (tmp_path / "kernels" / "scale_rows.cpp").write_text(kernel)
    (tmp_path / "model_new.py").write_text(blocks(TEXT, "python")[0])
    program = """import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pathlib import Path
import build
report = build.build(Path(sys.argv[1]), target="cpu", build_root=Path(sys.argv[1]) / "builds")
assert report["status"] == "built", report
sys.path.insert(0, str(Path(report["module"]).parent))
import torch
from model_new import ModelNew
model = ModelNew(5)
model.load_state_dict({"weight": torch.arange(5.0)})
x = torch.randn(7, 5)
assert torch.equal(model(x), x * torch.arange(5.0))
print("right")
"""
    argv = [sys.executable, "-I", "-W", "ignore", "-c", program, str(tmp_path), str(ROOT / "tools")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "right", done.stderr
