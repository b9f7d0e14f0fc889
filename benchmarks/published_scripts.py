"""CUDA-Agent's published scripts and this judge on one example: `python benchmarks/published_scripts.py CHECKOUT`.

CHECKOUT is a clone of BytedTsinghua-SIA/CUDA-Agent; its scripts are run as they are, nothing of them is in here. All
get the same edit of the same kernel (agent_workdir/kernels). Theirs compile, verify and profile; ours do the same as an
episode does (the action profile, with a tool that stands by: built, verified, timed against both baselines), and as
`agent judge` does, which builds everything anew in a fresh sandbox. Settings of the judge come from agent.toml in the
current folder. Theirs need a GPU.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from gpu_edit import acted, bench, device  # noqa: E402

from agent.config import Config, default_files, load_config  # noqa: E402
from agent.judging.cache import warm  # noqa: E402
from agent.judging.judge import judge_submission  # noqa: E402
from agent.tasks.task import Task, load_task  # noqa: E402

EXAMPLE = "agent_workdir"
STEPS = (
    ("compile", ["bash", "utils/compile.sh"]),
    ("verify", [sys.executable, "-m", "utils.verification"]),
    ("profile", [sys.executable, "-m", "utils.profiling"]),
)
LIMIT_S = 200


def edit(folder: Path, number: int) -> None:
    """A change that no compiler can skip, in every kernel."""
    for path in sorted((folder / "kernels").glob("*.cu")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("// edit")]
        path.write_text("\n".join([*lines, f"// edit {number}", ""]))


def theirs(folder: Path, repeats: int) -> None:
    spent: dict[str, list[float]] = {name: [] for name, _ in STEPS}
    # They call python3: the one that runs this has torch.
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
    for number in range(repeats):
        edit(folder, number)
        for name, command in STEPS:
            began = time.monotonic()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, env=env)
            spent[name].append(time.monotonic() - began)
            if done.returncode != 0:
                print(f"published scripts, {name}: failed with exit code {done.returncode}")
                print(f"  {(done.stdout + done.stderr).strip()[-600:]}")
                return
            last = (done.stdout.strip().splitlines() or [""])[-1]
            print(f"  {name} {spent[name][-1]:.1f} s  {last[:160]}", flush=True)
    for name, walls in spent.items():
        print(f"published scripts, {name}: {statistics.median(walls):.1f} s")
    whole = [sum(walls) for walls in zip(*spent.values(), strict=True)]
    print(f"published scripts, edit to verdict: {statistics.median(whole):.1f} s ({repeats} edits)", flush=True)


def in_an_episode(folder: Path, config: Config, task: Task, scratch: Path, repeats: int) -> None:
    with bench(config, task, folder, config.judge.target, scratch) as standing:
        found = [acted(config, standing, "profile", lambda at=at: edit(folder, 2000 + at)) for at in range(repeats + 1)]
    walls = [one.wall_s for one in found]
    evidence = found[-1].report["evidence"]
    print(f"  seconds of its life: {evidence['marks_s']}; of its rounds: {evidence['timing']['spent_s']}")
    print(
        f"this episode, edit to profile: {statistics.median(walls[1:]):.1f} s (first {walls[0]:.1f} s), of which "
        f"inside the tool {statistics.median(one.inside_s for one in found[1:]):.1f} s",
        flush=True,
    )


def judged(folder: Path, config: Config, task: Task, repeats: int) -> None:
    walls = []
    for number in range(repeats + 1):
        edit(folder, 1000 + number)
        began = time.monotonic()
        verdict = judge_submission(config, task, folder, lease=lambda: device(config))
        walls.append(time.monotonic() - began)
        said = [f"{reason.code}: {reason.detail[:120]}" for reason in verdict.reasons]
        memory, marks = verdict.evidence.get("memcheck"), verdict.evidence.get("marks_s")
        print(f"  {walls[-1]:.1f} s  {verdict.verdict} {said or ''} {memory or ''} {marks}", flush=True)
    print(f"this judge, edit to verdict: {statistics.median(walls[1:]):.1f} s (first {walls[0]:.1f} s)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument(
        "--memcheck", action="store_true", help="let compute-sanitizer look at what would be accepted, too"
    )
    flags = parser.parse_args()
    source = flags.checkout / EXAMPLE
    if not (source / "utils").is_dir():
        sys.exit(f"{source} is not there: give a clone of BytedTsinghua-SIA/CUDA-Agent")
    chosen = {"judge.target": flags.target, "judge.memcheck": flags.memcheck}
    config = load_config(files=default_files(Path.cwd()), flags=chosen)
    with tempfile.TemporaryDirectory(prefix="published-", ignore_cleanup_errors=True) as scratch:
        Path(scratch).chmod(0o755)
        theirs(Path(shutil.copytree(source, Path(scratch) / "theirs")), flags.repeats)
        copy = Path(shutil.copytree(source, Path(scratch) / "ours"))
        shutil.rmtree(copy / "utils")
        task = load_task(copy / "model.py")
        began = time.monotonic()
        warm(config, task)
        print(f"this judge, cache filled: {time.monotonic() - began:.1f} s", flush=True)
        in_an_episode(copy, config, task, Path(scratch), flags.repeats)
        judged(copy, config, task, flags.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
