"""Gives ModelNew of this folder outside the harness: builds kernels/ once with torch, then imports model_new.py.

    import sys
    sys.path.insert(0, "<this folder>")
    from use import ModelNew

Needs torch, ninja and g++; nothing of cuda-agent. `python use.py` builds and compares with model.py.
"""

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXTENSION = "cpu_extension"
SUFFIXES = ('.cpp',)
CXX_FLAGS = ['-O3', '-std=c++17', '-fopenmp', '-march=native']
NVCC_FLAGS = ['-O3', '-std=c++17', '--expt-relaxed-constexpr', '--expt-extended-lambda', '-DAGENT_TARGET_CUDA', '-Xcompiler=-fopenmp']
LINK_FLAGS = ['-fopenmp']


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build():
    """The compiled kernels as a module; None where this submission has none. The build is kept in build/ beside this file."""
    sources = sorted(p for p in (HERE / "kernels").glob("*") if p.suffix in SUFFIXES)
    if not sources or EXTENSION in sys.modules:
        return sys.modules.get(EXTENSION)
    from torch.utils import cpp_extension

    folder = HERE / "build"
    folder.mkdir(exist_ok=True)
    # ninja is often installed beside the interpreter without its folder being on the PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    module = cpp_extension.load(
        name=EXTENSION,
        sources=[str(HERE / "binding.cpp"), *map(str, sources)],
        extra_cflags=CXX_FLAGS,
        extra_cuda_cflags=NVCC_FLAGS,
        extra_ldflags=LINK_FLAGS,
        build_directory=str(folder),
    )
    sys.modules[EXTENSION] = module
    return module


build()
sys.path.insert(0, str(HERE))  # model_new.py may import its neighbours
model_new = _load("model_new", HERE / "model_new.py")
ModelNew = model_new.ModelNew


def compare():
    """Largest difference between Model of model.py and ModelNew with the same weights on one set of inputs."""
    import torch

    task = _load("model", HERE / "model.py")
    device = "cpu"
    old, new = (cls(*task.get_init_inputs()).to(device).eval() for cls in (task.Model, ModelNew))
    new.load_state_dict(old.state_dict())
    inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in task.get_inputs()]
    with torch.no_grad():
        results = [model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]) for model in (old, new)]
    pairs = zip(*([r] if isinstance(r, torch.Tensor) else list(r) for r in results), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


if __name__ == "__main__":
    print(f"ModelNew differs from Model by at most {compare():.3g} on one set of inputs")
