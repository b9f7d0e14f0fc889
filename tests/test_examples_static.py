"""The examples without running them: scripts parse, end submitted, obey the rules, and are named in the README."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.backends.script import Script, read_script
from agent.tasks.task import load_task
from agent.trajectory.reader import read_events

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/model.py"))
TARGET = {path: read_script(path / "turns.md").target for path in EXAMPLES}
CPU = [path for path in EXAMPLES if TARGET[path] == "cpu"]
CUDA = [path for path in EXAMPLES if path.name.startswith("cuda-")]
TRITON = [path for path in EXAMPLES if path.name.startswith("triton-")]
# Those for a GPU are recorded where there is one.
RECORDED = [path for path in EXAMPLES if path in CPU or (path / "run").exists()]
NVCC = Path("/usr/local/cuda/bin/nvcc")
CUBLAS = Path("/usr/local/cuda/include/cublas_v2.h")


def final_state(script: Script, folder: Path) -> Path:
    """What the script's file actions leave in a workspace; every edit must find its text exactly once."""
    (folder / "kernels").mkdir(parents=True)
    shutil.copy(script.task, folder / "model.py")
    for turn in script.turns:
        for name, arguments in turn.actions:
            if name == "write_file":
                (folder / arguments["path"]).write_text(arguments["content"])
            elif name == "edit_file":
                text = (folder / arguments["path"]).read_text()
                assert text.count(arguments["old"]) == 1
                (folder / arguments["path"]).write_text(text.replace(arguments["old"], arguments["new"]))
    return folder


def test_there_are_at_least_four_and_the_readme_names_them_all() -> None:
    assert len(EXAMPLES) >= 4
    readme = (ROOT / "examples" / "README.md").read_text()
    assert [path.name for path in EXAMPLES if f"`{path.name}`" not in readme] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_script_says_who_wrote_it_and_ends_verified_and_submitted(example: Path) -> None:
    assert load_task(example / "model.py").text
    script = read_script(example / "turns.md")
    assert script.author == "hand-written" and script.task == example / "model.py"
    names = [name for turn in script.turns for name, _ in turn.actions]
    assert names[-1] == "submit" and {"bash", "write_file", "verify", "profile"} <= set(names)
    last_change = max(index for index, name in enumerate(names) if name in ("write_file", "edit_file"))
    assert names[last_change + 1 :][:1] == ["verify" if example in TRITON else "compile"]
    assert names.index("profile", last_change) > last_change
    assert all(turn.text for turn in script.turns[:2])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_final_state_obeys_policy_strict(example: Path, tmp_path: Path) -> None:
    folder = final_state(read_script(example / "turns.md"), tmp_path / "w")
    scan = str(ROOT / "tools" / "scan.py")
    argv = [sys.executable, "-I", scan, "--workspace", str(folder), "--target", TARGET[example]]
    assert '"status": "clean"' in subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("example", CPU, ids=lambda path: path.name)
def test_the_computation_compiles_for_plain_x86_too(example: Path, tmp_path: Path) -> None:
    folder = final_state(read_script(example / "turns.md"), tmp_path / "w")
    kernels = [path for path in (folder / "kernels").glob("*.cpp") if not path.name.endswith("_binding.cpp")]
    assert kernels
    for kernel in kernels:
        for flags in (["-march=x86-64"], ["-march=x86-64-v3"], ["-march=x86-64-v4"]):
            argv = ["g++", "-O1", "-fopenmp", "-std=c++17", "-Wall", "-Wextra", "-Werror", *flags, "-c", str(kernel)]
            done = subprocess.run([*argv, "-o", str(tmp_path / "k.o")], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not NVCC.exists(), reason="no nvcc on this machine")
@pytest.mark.parametrize("example", CUDA, ids=lambda path: path.name)
def test_the_kernels_compile_for_hopper_and_spill_nothing(example: Path, tmp_path: Path) -> None:
    folder = final_state(read_script(example / "turns.md"), tmp_path / "w")
    shutil.copy(ROOT / "tools" / "binding" / "launcher.h", folder)
    (source,) = (folder / "kernels").glob("*.cu")
    if "cublas_v2.h" in source.read_text() and not CUBLAS.exists():
        pytest.skip("no cuBLAS headers on this machine")
    argv = [str(NVCC), "-O3", "-std=c++17", "-arch=sm_90", "-Xptxas=-v", "-Werror", "all-warnings", "-c", str(source)]
    done = subprocess.run([*argv, "-o", str(tmp_path / "k.o")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    spills = [line for line in done.stderr.splitlines() if "spill stores" in line]
    assert spills and all(" 0 bytes spill stores" in line for line in spills)


def test_there_are_five_in_cuda_and_three_in_triton() -> None:
    assert len(CUDA) >= 5 and len(TRITON) >= 3 and sorted([*CPU, *CUDA, *TRITON]) == EXAMPLES


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_run_is_of_this_task_and_was_judged_faster_than_torch_compile(folder: Path) -> None:
    events = list(read_events(folder / "run" / "events.jsonl"))
    assert events[0].task_sha256 == load_task(folder / "model.py").sha256
    calls = [event.verdict["speedup"]["compile"]["call"] for event in events if event.type == "verdict"]
    assert "faster" in calls
    assert events[-1].type == "run_end"
    assert (folder / "run" / "best" / "model.py").read_bytes() == (folder / "model.py").read_bytes()
