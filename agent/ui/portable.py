"""Makes a submission's folder usable without the harness: adds use.py, the binding files and model.py."""

import re
from pathlib import Path
from typing import Final

from agent.assets import asset
from agent.errors import RecordError
from agent.ui.templates_env import render

_CUDA_LIBRARIES: Final = (("cublasLt", "cublasLt"), ("cublas", "cublas"), ("cudnn", "cudnn"), ("curand", "curand"))

_NVCC_FLAGS: Final = (
    "-O3",
    "-std=c++17",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-DAGENT_TARGET_CUDA",
    "-Xcompiler=-fopenmp",
)
_BINDING: Final = ("binding.cpp", "binding_registry.h", "launcher.h")


def make_portable(folder: Path, *, target: str, model_text: str) -> Path:
    """Write what is missing into `folder` and return the path of its use.py. Raises RecordError.

    Files of these names are the harness' own: whatever a model left under them is replaced.
    """
    cuda = target == "cuda"
    use = render(
        "use.py.j2",
        extension="cuda_extension" if cuda else "cpu_extension",
        compiler="nvcc" if cuda else "g++",
        device=target,
        suffixes=repr((".cu", ".cpp") if cuda else (".cpp",)),
        cxx_flags=repr(["-O3", "-std=c++17", "-fopenmp", "-DAGENT_TARGET_CUDA" if cuda else "-march=native"]),
        nvcc_flags=repr(list(_NVCC_FLAGS)),
        link_flags=repr(["-fopenmp", *(_libraries(folder) if cuda else [])]),
    )
    binding = asset("tools") / "binding"
    contents = {
        "use.py": use,
        **{name: (binding / name).read_text(encoding="utf-8") for name in _BINDING},
        "model.py": model_text,
    }
    for name, text in contents.items():
        _replace(folder / name, text)
    return folder / "use.py"


def submitted_files(folder: Path) -> list[Path]:
    """model_new.py and what lies in kernels/, regular files only, without what `make_portable` and builds add."""
    files = [folder / "model_new.py", *sorted((folder / "kernels").rglob("*"))]
    return [f for f in files if f.is_file() and not f.is_symlink() and "__pycache__" not in f.parts]


def _libraries(folder: Path) -> list[str]:
    text = "".join(f.read_text(encoding="utf-8", errors="replace") for f in submitted_files(folder))
    included = set(re.findall(r'#\s*include\s*[<"]([^>"]+)[>"]', text))
    return [f"-l{library}" for prefix, library in _CUDA_LIBRARIES if any(h.startswith(prefix) for h in included)]


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
