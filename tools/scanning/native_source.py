"""Scans C++ and CUDA sources by their tokens, comments left out.

Covered: torch or a vendor library used as the computer under policy strict, threads, other processes, files, the
interpreter, code that runs at load time. Not covered: names built by macros; symbols.py and the judge see the result.
"""

import re
from collections.abc import Iterator
from typing import Final

from symbols import CUDA_ALLOWED

from scanning.allowed import COMPUTE, NATIVE

Finding = dict[str, str]
_TEXT: Final = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.S)
_TORCH_CALL: Final = re.compile(r"\b(?:at|torch)::(?:(?P<space>\w+)::)*(?P<name>[a-z_]\w*)\s*(?:<[^<>;(]*>)?\s*\(")
_SPACES: Final = re.compile(
    r"\b(?:at::(?:native|cpu|_ops|redispatch)|torch::(?:nn|linalg|special|fft|jit|autograd))::\w+"
)
_METHOD: Final = re.compile(r"(?:\.|->)\s*(?P<name>[a-z]\w*)\s*\(")
STRICT: Final = (
    (
        r"\bcblas_\w+|\b[sd](?:gemm|gemv|axpy|dot|ger)_\b",
        "policy.vendor_library",
        "BLAS computes here; write the kernel yourself",
    ),
    (
        r"\bmkl_\w+|\bMKL_\w+|\bv[sdm][sd]?(?:Exp|Tanh|Erf|Ln|Sqrt|Mul|Add)\w*\s*\(",
        "policy.vendor_library",
        "MKL computes here",
    ),
    (r"\bdnnl(?:_\w+|::\w+)|\bideep::", "policy.vendor_library", "oneDNN computes here"),
    (r"\bSleef_\w+", "policy.vendor_library", "Sleef computes here; write the approximation yourself"),
    (
        r"\bstatic\s+(?:thread_local\s+)?(?:torch|at)::Tensor\s+\w+\s*[;={]",
        "policy.keeps_state",
        "a tensor is kept across calls",
    ),
)
ALWAYS: Final = (
    (r"\b(?:dlopen|dlsym|dlmopen|dladdr)\s*\(", "policy.system_call", "looks up other code at run time"),
    (
        r"(?<![\w.>:])(?:system|popen|fork|vfork|execl?[vpe]*|posix_spawn\w*)\s*\(",
        "policy.system_call",
        "starts a process",
    ),
    (
        r"(?<![\w.>])(?:ptrace|process_vm_\w+|mprotect|syscall|kill|raise|sigaction)\s*\(",
        "policy.system_call",
        "works on the process itself",
    ),
    (r"(?<![\w.>])(?:_exit|_Exit|quick_exit|abort|exit)\s*\(", "tamper.process", "ends the process"),
    (
        r"\bstd::async\b|\bpthread_detach\b|\.detach\s*\(\s*\)\s*;",
        "policy.thread",
        "work that may go on after the return; use OpenMP, whose work ends with the call",
    ),
    (
        r"__attribute__\s*\(\(\s*(?:constructor|destructor)|__attribute__\s*\(\(\s*ifunc",
        "tamper.load_time",
        "runs code when the module is loaded",
    ),
    (
        r"\bPyRun_\w+|\bPyEval_Eval\w+|\bPyImport_\w+|\bmodule_?::import\s*\(|\bpy(?:bind11)?::(?:exec|eval)\b",
        "tamper.interpreter",
        "reaches into the interpreter",
    ),
    (r"\bstd::[io]?fstream\b|(?<![\w.>:])f?open(?:at)?\s*\(", "policy.file_access", "opens files"),
    (r"\bCallOnce\b|\bTORCH_LIBRARY\w*\s*\(", "tamper.patch", "registers operators with torch; use REGISTER_BINDING"),
)


def scan_native(text: str, *, policy: str, target: str, name: str) -> list[Finding]:
    """Findings in the order of their lines."""
    code = _TEXT.sub(_blank, text)
    spots: list[tuple[int, str, str]] = list(_threads(code))
    spots += _paths(text)
    rules = ALWAYS + STRICT if policy == "strict" else ALWAYS
    for pattern, reason, detail in rules:
        spots += [(match.start(), reason, f"{_shown(match)}: {detail}") for match in re.finditer(pattern, code)]
    if policy == "strict":
        spots += list(_torch(code))
        if target == "cuda":  # the paper's exception, and nothing beyond it: a GEMM and a convolution
            spots += _beyond_cuda(code)
    lines = {(code.count("\n", 0, at) + 1, reason, detail) for at, reason, detail in spots}
    return [{"code": reason, "detail": f"{name} line {line}: {detail}"} for line, reason, detail in sorted(lines)]


def _blank(match: re.Match[str]) -> str:
    """Comments become spaces, strings empty strings; lines keep their numbers."""
    inside = re.sub(r"[^\n]", " ", match.group(0))
    return f'"{inside[1:-1]}"' if match.group(1) else inside


def _paths(text: str) -> Iterator[tuple[int, str, str]]:
    for match in _TEXT.finditer(text):
        if match.group(1) and "/proc/" in match.group(1):
            yield match.start(), "policy.file_access", f"{match.group(1)[:40]}: a kernel gets everything as arguments"


def _shown(match: re.Match[str]) -> str:
    return " ".join(match.group(0).split())[:60].rstrip("(; ")


def _threads(code: str) -> Iterator[tuple[int, str, str]]:
    """Threads that nothing in the file waits for; joined ones end with the call."""
    if re.search(r"[.>]join\s*\(|\bpthread_join\b|\bstd::jthread\b", code):
        return
    for match in re.finditer(r"\bstd::thread\b|\bpthread_create\b", code):
        yield match.start(), "policy.thread", f"{match.group(0)}: nothing waits for the thread; use OpenMP"


def _torch(code: str) -> Iterator[tuple[int, str, str]]:
    for match in _SPACES.finditer(code):
        if not match.group(0).startswith("torch::autograd::Variable"):
            yield match.start(), "policy.torch_op", f"{match.group(0)} computes in torch; write it as a kernel"
    for match in _TORCH_CALL.finditer(code):
        if match["name"] not in NATIVE and match["space"] not in (
            "native",
            "cpu",
            "_ops",
            "nn",
            "cuda",
            "internal",
            "detail",
        ):
            text = f"{_shown(match)} computes in torch; a source may allocate, view and read metadata"
            yield match.start(), "policy.torch_op", text
    for match in _METHOD.finditer(code):
        if match["name"] in COMPUTE:
            yield match.start(), "policy.torch_op", f".{match['name']}() computes in torch; write it as a kernel"


def _beyond_cuda(code: str) -> list[tuple[int, str, str]]:
    pattern = rf"\b(?:cufft|cusparse|cusolver|curand|(?!{CUDA_ALLOWED.pattern})cu(?:dnn|blas))\w*\s*\("
    found = re.finditer(pattern, code)
    return [
        (m.start(), "policy.vendor_library", f"{_shown(m)}: only cuBLAS for GEMM and cuDNN for convolution")
        for m in found
    ]
