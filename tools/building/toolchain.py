"""Which compilers, flags and libraries a build uses, found without importing torch (that alone costs a second).

The flags and versions collected here are part of a build's content hash; of the environment, PATH alone counts, and
only for a compiler that is in none of the usual folders.
"""

import functools
import importlib.util
import os
import re
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from building import device

Target = Literal["cpu", "cuda"]
BINDING: Final = Path(__file__).resolve().parent.parent / "binding"
SEARCH_PATH: Final = "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"
MODULE: Final = {"cpu": "cpu_extension", "cuda": "cuda_extension"}
GXX_FLAGS: Final = ("-march=native", "-fopenmp", "-std=c++17", "-fPIC", "-fvisibility=hidden")
# Target cuda: g++ compiles bindings only, which a third of the optimiser's work more would not make faster.
TARGET_FLAGS: Final = {"cpu": ("-O3",), "cuda": ("-O1", "-DAGENT_TARGET_CUDA")}
NVCC_FLAGS: Final = (
    "-O3",
    "-std=c++17",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-lineinfo",
    "-Xptxas=-v",
    "-DAGENT_TARGET_CUDA",
    "-Xcompiler=-fPIC,-fopenmp",
)
# Keeps one mistake from printing megabytes.
GXX_DIAGNOSTICS: Final = ("-fmax-errors=40", "-ftemplate-backtrace-limit=6", "-fdiagnostics-color=never")
# Header named in a source -> library to link (target cuda).
CUDA_LIBRARIES: Final = (
    ("cublas_v2.h", "cublas"),
    ("cublas.h", "cublas"),
    ("cublasLt.h", "cublasLt"),
    ("cudnn.h", "cudnn"),
    ("cusparse.h", "cusparse"),
    ("cufft.h", "cufft"),
    ("curand.h", "curand"),
    ("nvrtc.h", "nvrtc"),
)


class ToolchainError(Exception):
    """A compiler, torch or the device's architecture is missing: infrastructure, not the submission's fault."""


@dataclass(frozen=True)
class Toolchain:
    """Compilers and flags for one target; `identity` names versions and flags and goes into every cache key."""

    target: Target
    cxx: str
    nvcc: str | None
    arch: str | None
    torch: Path
    torch_version: str
    cxx_version: str
    nvcc_version: str

    @property
    def module(self) -> str:
        return MODULE[self.target]

    @property
    def identity(self) -> str:
        flags = (*self.cxx_flags, *self.defines, *(NVCC_FLAGS if self.nvcc else ()), self.arch or "")
        versions = (self.cxx_version, self.nvcc_version, self.torch_version, str(self.torch), _python_include())
        return "\n".join((self.target, *versions, *flags))

    @property
    def search_path(self) -> str:
        """PATH of a compiler process: the usual folders, and those where this toolchain was found."""
        own = dict.fromkeys(str(Path(tool).parent) for tool in (self.nvcc, self.cxx) if tool)
        return ":".join([*(folder for folder in own if folder not in SEARCH_PATH.split(":")), SEARCH_PATH])

    @property
    def cxx_flags(self) -> tuple[str, ...]:
        return (*TARGET_FLAGS[self.target], *GXX_FLAGS)

    @property
    def defines(self) -> tuple[str, ...]:
        return (f"-DTORCH_EXTENSION_NAME={self.module}", "-DTORCH_API_INCLUDE_EXTENSION_H")

    @property
    def include_folders(self) -> list[Path]:
        folders = [self.torch / "include", self.torch / "include/torch/csrc/api/include", Path(_python_include())]
        return folders + (cuda_folders("include") if self.target == "cuda" else [])

    @property
    def includes(self) -> tuple[str, ...]:
        return tuple(argument for folder in self.include_folders for argument in ("-isystem", str(folder)))

    def cxx_command(self, source: str, output: str, *, prelude: str | None) -> list[str]:
        """g++ for one source, run in the build folder. `prelude` is a header whose .gch may lie beside it."""
        force = ["-include", prelude] if prelude else []
        return [
            self.cxx,
            *self.cxx_flags,
            *self.defines,
            *GXX_DIAGNOSTICS,
            *force,
            "-Iinclude",
            *self.includes,
            "-c",
            source,
            "-o",
            output,
        ]

    def nvcc_command(self, source: str, output: str) -> list[str]:
        """nvcc for one source, with our own g++ behind it; the toolkit's headers come before those of wheels."""
        assert self.nvcc and self.arch
        gencode = f"-gencode=arch=compute_{self.arch},code=sm_{self.arch}"
        includes = [folder for folder in self.include_folders if not folder.is_relative_to(Path("/usr/local/cuda"))]
        pairs = [argument for folder in includes for argument in ("-isystem", str(folder))]
        compiler = [self.nvcc, f"-ccbin={self.cxx}", *NVCC_FLAGS, gencode, *self.defines]
        return [*compiler, "-Iinclude", *pairs, "-c", source, "-o", output]

    def link_command(self, objects: list[str], output: str, *, texts: list[bytes]) -> list[str]:
        """Links with unresolved symbols as warnings: those of the interpreter are expected, others are errors."""
        folders = [self.torch / "lib"]
        libraries = ["-lc10", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-lgomp"]
        if self.target == "cuda":
            folders += cuda_folders("lib64") + cuda_folders("lib")
            present = [name for name in ("c10_cuda", "torch_cuda") if (self.torch / f"lib/lib{name}.so").exists()]
            libraries += [f"-l{name}" for name in present] + ["-lcudart", *_wanted_libraries(texts, folders)]
        search = [f"-L{folder}" for folder in folders]
        lenient = ["-Wl,-z,defs", "-Wl,--warn-unresolved-symbols", "-Wl,--as-needed"]
        return [self.cxx, "-shared", "-fopenmp", *objects, "-o", output, *search, *lenient, *libraries]


def find_toolchain(target: Target, *, arch: str | None = None) -> Toolchain:
    """The machine's compilers for `target`. Raises ToolchainError with what is missing."""
    cxx = _which("g++")
    if cxx is None:
        raise ToolchainError("g++ is not installed")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ToolchainError("torch is not installed for this interpreter")
    torch = Path(spec.origin).parent
    nvcc = None
    if target == "cuda":
        nvcc = _which("nvcc")
        if nvcc is None:
            raise ToolchainError(f"nvcc is not installed (looked in {SEARCH_PATH} and on PATH)")
        arch = _named_arch(arch) if arch else device.own_target(_device_arch())
    return Toolchain(
        target=target,
        cxx=cxx,
        nvcc=nvcc,
        arch=arch if target == "cuda" else None,
        torch=torch,
        torch_version=_torch_version(torch),
        cxx_version=_native_identity(cxx),
        nvcc_version=_output(nvcc, "--version").strip().splitlines()[-1] if nvcc else "",
    )


def cuda_folders(name: str) -> list[Path]:
    """CUDA's include or library folders: the toolkit's, and those of nvidia's wheels beside torch."""
    found = [Path("/usr/local/cuda") / name]
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    found += sorted(site.glob(f"*/{name}"))
    return [folder for folder in found if folder.is_dir()]


def _wanted_libraries(texts: list[bytes], folders: list[Path]) -> list[str]:
    wanted = {library for header, library in CUDA_LIBRARIES for text in texts if header.encode() in text}
    flags = []
    for library in sorted(wanted):
        versioned = sorted(path.name for folder in folders for path in folder.glob(f"lib{library}.so*"))
        # nvidia's wheels ship lib….so.9 without the plain name that -l looks for.
        flags.append(f"-l{library}" if not versioned or f"lib{library}.so" in versioned else f"-l:{versioned[0]}")
    return flags


@functools.cache
def _native_identity(cxx: str) -> str:
    """Compiler version plus what -march=native means here: a cache that came from another CPU must not match."""
    version = _output(cxx, "--version").splitlines()[0]
    native = _output(cxx, "-march=native", "-Q", "--help=target")
    enabled = [line.split()[0] for line in native.splitlines() if line.endswith("[enabled]")]
    tune = re.findall(r"-m(?:arch|tune)=\s+\S+", native)
    return " ".join((version, *tune, *enabled))


def _output(*argv: str) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=30, check=False, env={"PATH": SEARCH_PATH, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        raise ToolchainError(f"{argv[0]} does not run: {done.stderr.strip()[:200]}")
    return done.stdout


def _which(name: str) -> str | None:
    """In the usual folders, then where PATH points: a machine may keep its compilers somewhere of its own."""
    for folder in search_path().split(":"):
        if folder.startswith("/") and (Path(folder) / name).is_file():
            return f"{folder}/{name}"
    return None


def _torch_version(torch: Path) -> str:
    match = re.search(r"__version__ = ['\"]([^'\"]+)", (torch / "version.py").read_text(encoding="utf-8"))
    return match.group(1) if match else "unknown"


def _python_include() -> str:
    return sysconfig.get_paths()["include"]


def _named_arch(name: str) -> str:
    arch = device.named_target(name)
    if arch is None:
        raise ToolchainError(f"{name!a} is not a GPU architecture (for example sm_90)")
    return arch


@functools.cache
def _device_arch() -> str:
    arch = device.compute_capability()
    if arch is None:
        raise ToolchainError("no GPU to ask for its architecture; name one with --arch (for example sm_90)")
    return arch


def search_path() -> str:
    """Where programs are searched; a compiler in a place of its own comes with the sandbox and is searched last."""
    return f"{SEARCH_PATH}:{os.environ.get('PATH', '')}"
