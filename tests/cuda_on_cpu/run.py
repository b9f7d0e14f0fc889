"""All tasks of benchmarks/builtin_tasks, and edges, through the emulator or Triton's interpreter: what is right.

`python tests/cuda_on_cpu/run.py [--sizes odd,even,ones,wide] [--variant N] cuda|triton [NAME…]`. With sizes `full`
tasks stay as they are. Covers no times: those of a CPU say nothing about a GPU.
"""

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1]), str(HERE.parents[1] / "tools")]


def verdict(target: str, model: Any, inputs: Sequence[Any], folder: Path, variant: int, *, edges: bool) -> list[str]:
    import forwards

    from agent.backends.builtin import emit_cuda, emit_triton, submission
    from agent.backends.builtin.ir import Unsupported

    try:
        graph = forwards.traced(model, inputs)
        if target == "cuda":
            modules = _emulated(submission.make(graph, "cuda", emit_cuda.VARIANTS[variant]), model, folder)
        else:
            import interpreted

            text = submission.make_triton(graph, emit_triton.VARIANTS[variant]).files["model_new.py"]
            modules = [interpreted.module(text, model, folder / "model_new.py")]
        found = [why for module in modules for why in forwards.differences(model, module, inputs)]
        if edges:
            found += [
                f"special values: {why}" for why in forwards.differences(model, modules[0], forwards.special(inputs))
            ]
        return found
    except Unsupported as error:
        return [f"not handled: {error}"]
    except Exception as error:  # noqa: BLE001 - a table has a line for everything
        return [f"{type(error).__name__}: {str(error)[:300]}"]


def _emulated(made: Any, model: Any, folder: Path) -> list[Any]:
    import emulation
    import forwards

    library = emulation.Library({k: v for k, v in made.files.items() if k.endswith(".cu")}, folder)
    text = made.files["model_new.py"]
    return [
        forwards.new_module(text, model, emulation.module(library, seed=seed, at_end=at_end))
        for seed, at_end in ((0, True), (3, False))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=("cuda", "triton"))
    parser.add_argument("names", nargs="*", help="tasks, or the beginnings of their names (default: all)")
    parser.add_argument("--sizes", default="odd,even")
    parser.add_argument("--variant", type=int, default=0)
    flags = parser.parse_args()
    if flags.target == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
    warnings.simplefilter("ignore")
    import cases
    import forwards

    made: list[tuple[str, Any]] = []
    for path in sorted(forwards.TASKS.glob("*.py")):
        for sizes in flags.sizes.split(","):
            text = path.read_text() if sizes == "full" else forwards.task_text(path.stem, sizes)
            made.append((f"{path.stem} {sizes}", text))
    made += [(f"edges: {name}", case) for name, case in cases.CASES.items()]
    wrong = 0
    for name, case in made:
        if flags.names and not name.startswith(tuple(flags.names)):
            continue
        model, inputs = forwards.task(case) if isinstance(case, str) else case
        with tempfile.TemporaryDirectory() as folder:
            found = verdict(flags.target, model, inputs, Path(folder), flags.variant, edges="full" not in name)
        wrong += bool(found)
        print(f"{name:40} {'; '.join(found) or 'right'}", flush=True)
    print(f"{wrong} wrong or not handled")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
