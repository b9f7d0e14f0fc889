"""What a built module takes from elsewhere: its undefined dynamic symbols and needed libraries, sorted into kinds.

`python -I symbols.py MODULE.so [--policy P --target T]` prints one JSON object. Covered: everything that the loader
will resolve by name. Not covered: what is found by other means at run time (dlsym is a finding for that reason; raw
system calls and pointers taken from torch's objects leave no name). The file is only read, never loaded.
"""

import argparse
import json
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from referee.policy import ALLOWED as OPERATORS

MAX_BYTES: Final = 256 << 20
_DYNSYM: Final = 11
_DYNAMIC: Final = 6
_UNDEFINED: Final = 0
_NEEDED: Final = 1
# Suffixes that name an overload of an allowed operator: at::_ops::empty_memory_format is aten::empty.memory_format.
_OVERLOAD_NAMES: Final = """
memory_format names int Dimname dtype dtype_layout device other prim_dtype Scalar Tensor sizes indices Dim dim dims self
default generator source_Storage source_Storage_storage_offset source_Tensor array ScalarList names_dtype symint SymInt
complex size Dimname_Dimname tensor_indices_or_sections indices_or_sections
"""
_OVERLOADS: Final = frozenset(_OVERLOAD_NAMES.split())
# at:: beyond operators that only allocates, describes or runs our own loop in parallel.
_AT: Final = re.compile(
    r"(Tensor(Base|Ref)?|TensorOptions|internal|detail|Context|globalContext|indexing|vec|DeprecatedTypeProperties|TensorMaker)$"
)
_AT_FUNCTIONS: Final = ("get_num_threads", "get_thread_num", "in_parallel_region", "intraop_default_num_threads")
_VENDOR: Final = re.compile(
    r"cblas_|LAPACKE_|mkl_|MKL_|vml|v[sdm][sd]?(?:Exp|Tanh|Erf|Ln|Sqrt|Inv|Mul|Add|Div|Pow)|dnnl_|_ZNK?4dnnl|_ZNK?5ideep|Sleef_|"
    r"[sdcz](?:gemm|gemv|axpy|dot|ger|scal|symm|syrk|trsm|getrf|geqrf|gesv|potrf)_$|openblas|nnp_|xnn_|pytorch_q8"
)
_CUDA_VENDOR: Final = re.compile(r"cublas|cudnn")
# The paper's exception on target cuda: cuBLAS for GEMM, cuDNN for convolution, and what describes their arguments.
CUDA_ALLOWED: Final = re.compile(
    r"cublas(Lt)?(Create|Destroy|Set|Get|Logger|Heuristics|Matmul|Matrix|Status)|cublas\w*[Gg]em[mv]|"
    r"cudnn(Create|Destroy|Set|Get)(_v\d+|$|Stream|Tensor|Filter|Convolution|Error|Version|Property)|cudnn\w*Convolution"
)
_CUDA_OTHER: Final = re.compile(r"cufft|cusparse|cusolver|curand|nccl|cutensor|nvrtc|cuModuleLoad|cuLibraryLoad")
_SYSTEM: Final = re.compile(
    r"(dlopen|dlsym|dlvsym|dlmopen|dladdr1?|dl_iterate_phdr|system|popen|v?fork|clone3?|exec[lv]\w*|posix_spawn\w*|ptrace|"
    r"process_vm_\w+|mprotect|pkey_mprotect|syscall|kill|tgkill|raise|sigaction|signal|sigqueue|setitimer|timer_create|prctl|"
    r"personality|_exit|_Exit|quick_exit|exit|abort|on_exit|atexit|socket|connect|bind|sendmsg|recvmsg|memfd_create|"
    r"shm_open|unshare|setns|io_uring_\w+|inotify_\w+|sched_set\w+|pthread_setaffinity_np|setpriority)$"
)
_THREAD: Final = re.compile(
    r"pthread_create$|thrd_create$|_ZNSt6thread15_M_start_thread|_ZNSt6thread6detachEv|_ZNSt13__future_base"
)
_FILES: Final = re.compile(
    r"(f?open(at)?(64)?|fdopen|creat|mmap(64)?|read|pread(64)?|write|pwrite(64)?|unlink|rename|readlink|opendir)$|"
    r"_ZNK?St\d*(__cxx11\d*)?\d*basic_i?o?(fstream|filebuf)|_ZNSt13basic_filebuf|_ZNSt14basic_ifstream|_ZNSt14basic_ofstream"
)
_INTERPRETER: Final = re.compile(
    r"_?Py(Run_|Eval_Eval|Import_|Code_|Marshal_|Function_|Sys_|GC_|Unstable|OS_|Interpreter(State_New|State_Head))|Py_Compile|"
    r"PyObject_GC_GetObjects|PyFrame_GetLocals|PyEval_Get(Frame|Locals|Globals)|PyEval_Set(Trace|Profile)"
)


class ElfError(Exception):
    """The file is no little-endian ELF64 shared object that this reader understands."""


@dataclass(frozen=True)
class Imports:
    """Undefined dynamic symbols (mangled) and the libraries named by DT_NEEDED."""

    symbols: tuple[str, ...]
    needed: tuple[str, ...]


def read_imports(path: Path) -> Imports:
    """Raises ElfError for anything that is not a well-formed ELF64 file, OSError where it cannot be read."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES or data[:6] != b"\x7fELF\x02\x01":
        raise ElfError(f"{path.name} is not an ELF64 little-endian file of at most {MAX_BYTES >> 20} MB")
    try:
        sections = _sections(data)
        symbols = [
            name for kind, link, body in sections if kind == _DYNSYM for name in _undefined(data, body, sections, link)
        ]
        needed = [
            name for kind, link, body in sections if kind == _DYNAMIC for name in _libraries(data, body, sections, link)
        ]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ElfError(f"{path.name} is a damaged ELF file: {error}") from error
    if not any(kind == _DYNSYM for kind, _, _ in sections):
        raise ElfError(f"{path.name} has no dynamic symbol table")
    return Imports(tuple(sorted(set(symbols))), tuple(needed))


_Section = tuple[int, int, tuple[int, int]]  # type, link, (offset, size)


def _sections(data: bytes) -> list[_Section]:
    start = struct.unpack_from("<Q", data, 0x28)[0]
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    found = []
    for index in range(count):
        _, kind, _, _, offset, size, link = struct.unpack_from("<IIQQQQI", data, start + index * entry_size)
        found.append((kind, link, (offset, size)))
    return found


def _undefined(data: bytes, body: tuple[int, int], sections: list[_Section], link: int) -> list[str]:
    offset, size = body
    names = []
    for at in range(offset + 24, offset + size, 24):  # entry 0 is empty by definition
        name, _, _, section = struct.unpack_from("<IBBH", data, at)
        if section == _UNDEFINED and name:
            names.append(_string(data, sections[link][2], name))
    return names


def _libraries(data: bytes, body: tuple[int, int], sections: list[_Section], link: int) -> list[str]:
    offset, size = body
    entries = (struct.unpack_from("<qQ", data, at) for at in range(offset, offset + size, 16))
    return [_string(data, sections[link][2], value) for tag, value in entries if tag == _NEEDED]


def _string(data: bytes, table: tuple[int, int], at: int) -> str:
    start = table[0] + at
    return data[start : data.index(b"\0", start)].decode("ascii", "replace")


def nested_names(symbol: str) -> list[str]:
    """The leading identifiers of a mangled C++ name: _ZN2at4_ops6matmul4callE… -> at, _ops, matmul, call."""
    match = re.match(r"_ZN[VK]*", symbol)
    at = match.end() if match else 2 if symbol.startswith("_Z") else 0
    names: list[str] = []
    while at and (length := re.match(r"\d+", symbol[at:])):
        at += length.end()
        names.append(symbol[at : at + int(length.group())])
        at += int(length.group())
    return names


def classify(symbol: str, *, target: str = "cpu") -> tuple[str, str]:
    """(kind, what): kind is allowed, torch_op, vendor_library, system_call, thread, file_access or interpreter."""
    plain = symbol.partition("@")[0]
    names = nested_names(plain)
    if names and names[0] in ("at", "torch", "c10"):
        return _torch_kind(names)
    if _VENDOR.match(plain) or _CUDA_OTHER.match(plain):
        return "vendor_library", plain
    if _CUDA_VENDOR.match(plain):
        return ("allowed" if target == "cuda" and CUDA_ALLOWED.match(plain) else "vendor_library"), plain
    for kind, pattern in (
        ("system_call", _SYSTEM),
        ("thread", _THREAD),
        ("file_access", _FILES),
        ("interpreter", _INTERPRETER),
    ):
        if pattern.match(plain):
            return kind, "::".join(names) or plain
    return "allowed", plain


def _torch_kind(names: list[str]) -> tuple[str, str]:
    shown = "::".join(names[:3])
    if names[0] == "at" and len(names) > 1:
        if names[1] == "_ops":
            return ("allowed" if len(names) > 2 and _is_allowed_operator(names[2]) else "torch_op"), shown
        if names[1] == "cuda":
            return ("torch_op" if len(names) > 2 and names[2] in ("blas", "native") else "allowed"), shown
        return ("allowed" if _AT.match(names[1]) or names[1] in _AT_FUNCTIONS else "torch_op"), shown
    if names[0] == "c10":
        return ("torch_op" if len(names) > 1 and names[1] in ("Dispatcher", "OperatorHandle") else "allowed"), shown
    compute = ("nn", "jit", "Library", "CppFunction", "autograd", "special", "linalg", "fft", "dynamo", "inductor")
    allowed_autograd = len(names) > 2 and names[1] == "autograd" and "Meta" in names[2] + "".join(names[3:])
    return ("torch_op" if len(names) > 1 and names[1] in compute and not allowed_autograd else "allowed"), shown


def _is_allowed_operator(name: str) -> bool:
    if name in OPERATORS:
        return True
    return any(name.startswith(op + "_") and name[len(op) + 1 :] in _OVERLOADS for op in OPERATORS)


DETAILS: Final = {
    "torch_op": ("policy.torch_op", "the module calls {what}: torch computes; write it as a kernel"),
    "vendor_library": ("policy.vendor_library", "the module calls {what} of a vendor's library; write it as a kernel"),
    "system_call": ("policy.system_call", "the module can call {what}, which no kernel needs"),
    "thread": ("policy.thread", "the module starts threads ({what}); use OpenMP, whose work ends with the call"),
    "file_access": ("policy.file_access", "the module can open or map files ({what}), which no kernel needs"),
    "interpreter": ("tamper.interpreter", "the module reaches into the interpreter ({what})"),
}


def findings(imports: Imports, *, policy: str, target: str) -> list[dict[str, str]]:
    """One finding {"code", "detail"} for each thing that `policy` does not allow; under open torch may compute."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for symbol in imports.symbols:
        kind, what = classify(symbol, target=target)
        if kind == "allowed" or (policy == "open" and kind in ("torch_op", "vendor_library")):
            continue
        code, text = DETAILS[kind]
        found[code, what] = {"code": code, "detail": text.format(what=what)}
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="List what a built module imports and what policy says about it.")
    parser.add_argument("module", type=Path)
    parser.add_argument("--policy", choices=("strict", "open"), default="strict")
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    flags = parser.parse_args()
    report: dict[str, Any] = {"schema_version": 1, "tool": "symbols"}
    try:
        imports = read_imports(flags.module)
    except (ElfError, OSError) as error:
        report |= {"status": "error", "reasons": [{"code": "build.not_a_module", "detail": str(error)}]}
    else:
        reasons = findings(imports, policy=flags.policy, target=flags.target)
        report |= {"status": "findings" if reasons else "clean", "reasons": reasons}
        report |= {"needed": list(imports.needed), "symbols": list(imports.symbols)}
    json.dump(report, sys.stdout)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
