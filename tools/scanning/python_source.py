"""Scans model_new.py by its syntax tree, never running it.

Covered: torch used as the computer under policy strict, the reference imported, other modules patched, precision or
compile switches flipped, state kept across calls, fallbacks, imports that a kernel does not need. Not covered: anything
that hides from names (getattr with built strings); the judge watches what really runs.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from scanning.allowed import COMPUTE, PYTHON

Finding = dict[str, str]
SUSPICIOUS: Final = {
    "ctypes": "loads and calls native code around the build",
    "gc": "looks at other objects of the process",
    "inspect": "looks at the caller",
    "subprocess": "starts processes",
    "multiprocessing": "starts processes",
    "socket": "opens connections",
    "threading": "computes beside the call",
    "concurrent": "computes beside the call",
    "signal": "changes how the process ends",
    "atexit": "runs code at the end of the process",
    "importlib": "imports by computed names",
    "builtins": "changes the language's own names",
    "mmap": "reads memory or files",
    "faulthandler": "changes how the process ends",
}
STRICT_SUSPICIOUS: Final = {"os": "is not needed to call kernels", "sys": "is not needed to call kernels"}
DYNAMIC: Final = frozenset({"exec", "eval", "compile", "__import__", "globals", "vars"})
PRECISION: Final = ("backends", "set_float32_matmul_precision", "set_default_dtype", "set_flush_denormal")
COMPILE_SWITCHES: Final = ("_dynamo", "_inductor", "compiler")
ENDINGS: Final = frozenset({"_exit", "exit", "abort", "kill", "_getframe"})


@dataclass
class _Scope:
    """What the file's names stand for: alias -> dotted module; attributes of self that hold torch.nn modules."""

    modules: dict[str, str] = field(default_factory=dict)
    layers: set[str] = field(default_factory=set)


def scan_python(text: str, *, policy: str, name: str = "model_new.py") -> list[Finding]:
    """Findings in the order of their lines; an unparsable file is one finding."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0)
        return [_finding("load.syntax", f"{name} line {line}: {getattr(error, 'msg', error)}")]
    scope = _Scope()
    _collect(tree, scope)
    spots: list[tuple[int, str, str]] = []
    if not any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.walk(tree)):
        spots.append((1, "load.no_model_new", "there is no class ModelNew"))
    for node in ast.walk(tree):
        spots += [(getattr(node, "lineno", 1), code, detail) for code, detail in _anywhere(node, scope, policy)]
    if policy == "strict":
        for function in _forward_code(tree):
            spots += _strict(function, scope)
    return [_finding(code, f"{name} line {line}: {detail}") for line, code, detail in sorted(set(spots))]


def _finding(code: str, detail: str) -> Finding:
    return {"code": code, "detail": detail}


def _collect(tree: ast.AST, scope: _Scope) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                scope.modules[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                scope.modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = _dotted(node.value.func, scope)
            if made.startswith("torch.nn.") and made != "torch.nn.Parameter":
                scope.layers |= {t.attr for t in node.targets if isinstance(t, ast.Attribute) and _root(t) == "self"}


def _dotted(node: ast.AST, scope: _Scope) -> str:
    """torch.nn.functional.relu for F.relu and the like; empty where the expression is no dotted name of a module."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in scope.modules:
        return ""
    return ".".join([scope.modules[node.id], *reversed(parts)])


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _anywhere(node: ast.AST, scope: _Scope, policy: str) -> Iterator[tuple[str, str]]:
    """What is wrong wherever in the file it stands."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for top in (name.split(".")[0] for name in names):
            if top in ("model", "reference"):
                yield (
                    "policy.imports_reference",
                    "imports the reference; ModelNew must stand alone (the judge has no model.py)",
                )
            why = SUSPICIOUS.get(top) or (STRICT_SUSPICIOUS.get(top) if policy == "strict" else None)
            if why:
                yield "policy.import", f"import of {top}: {why}"
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        for target in targets:
            yield from _patched(target, scope)
    elif isinstance(node, ast.Call):
        yield from _called(node, scope)
    elif isinstance(node, ast.ClassDef):
        yield from _class(node, scope)


def _patched(target: ast.AST, scope: _Scope) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Attribute) and target.attr in ("__code__", "__dict__", "__class__"):
        yield "tamper.patch", f"replaces {target.attr} of another object"
    if not isinstance(target, ast.Attribute | ast.Subscript):
        return
    dotted = _dotted(target.value if isinstance(target, ast.Subscript) else target, scope)
    if not dotted:
        return
    if any(f".{word}" in dotted for word in PRECISION):
        yield "numeric.precision_flag", f"sets {dotted}; both sides run with the flags that the judge sets"
    elif any(f"torch.{word}" in dotted for word in COMPILE_SWITCHES) or dotted.startswith("os.environ"):
        yield "tamper.environment", f"sets {dotted}, which reaches beyond this module"
    else:
        yield "tamper.patch", f"assigns {dotted}; another module's names are not yours to change"


def _called(node: ast.Call, scope: _Scope) -> Iterator[tuple[str, str]]:
    name = _dotted(node.func, scope)
    last = name.rpartition(".")[2]
    if isinstance(node.func, ast.Name) and node.func.id in DYNAMIC and not name:
        yield "policy.dynamic_code", f"{node.func.id}() hides what the file does"
    elif isinstance(node.func, ast.Name) and node.func.id == "open" and not name:
        yield "policy.file_access", "opens a file; a kernel gets everything through its arguments"
    elif isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args and _dotted(node.args[0], scope):
        yield "tamper.patch", f"setattr on {_dotted(node.args[0], scope)}"
    elif name.startswith("torch.library"):
        yield "tamper.patch", "registers or replaces operators of torch"
    elif last in ("set_float32_matmul_precision", "set_default_dtype", "set_flush_denormal"):
        yield "numeric.precision_flag", f"calls {name}; both sides run with the flags that the judge sets"
    elif last == "set_stance" or name.startswith(("torch._dynamo", "torch._inductor")):
        yield "tamper.environment", f"calls {name}, which changes the baseline"
    elif name.startswith("torch._C"):
        yield "tamper.torch_internals", f"calls {name}; torch's internals are not needed to call a kernel"
    elif name.partition(".")[0] in ("os", "sys") and last in ENDINGS:
        yield "tamper.process", f"calls {name}"


def _class(node: ast.ClassDef, scope: _Scope) -> Iterator[tuple[str, str]]:
    bases = {_dotted(base, scope) for base in node.bases}
    if "torch.Tensor" in bases:
        yield "tamper.tensor_subclass", f"class {node.name} is a tensor subclass; outputs must be plain tensors"
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name in ("__torch_function__", "__torch_dispatch__"):
            yield "tamper.tensor_subclass", f"{item.name} changes what torch's operators do"


def _forward_code(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions that may run during forward: all but __init__ and Triton kernels."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__" and not _is_triton(node):
            yield node


def _is_triton(node: ast.FunctionDef) -> bool:
    return any("triton" in ast.unparse(decorator) for decorator in node.decorator_list)


def _strict(function: ast.FunctionDef, scope: _Scope) -> list[tuple[int, str, str]]:
    arguments = {argument.arg for argument in function.args.args} - {"self"}
    known = set(arguments) if function.name == "forward" else set()
    found: list[tuple[int, str, str]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _makes_tensor(node.value, scope):
            known |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(function):
        line = getattr(node, "lineno", 1)
        found += [(line, code, detail) for code, detail in _strict_node(node, scope, known, function.name)]
    return found


def _makes_tensor(call: ast.Call, scope: _Scope) -> bool:
    name = _dotted(call.func, scope)
    return name.startswith(("torch.empty", "torch.zeros", "torch.ones", "cpu_extension.", "cuda_extension."))


def _strict_node(node: ast.AST, scope: _Scope, known: set[str], function: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Call):
        yield from _strict_call(node, scope)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield "policy.torch_op", "the operator @ is torch's matrix product"
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.UnaryOp | ast.Compare):
        operands = [child.id for child in ast.iter_child_nodes(node) if isinstance(child, ast.Name)]
        identity = isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot | ast.In) for op in node.ops)
        for name in operands:
            if name in known and not identity:
                yield "policy.torch_op", f"arithmetic on the tensor {name} runs in torch; do it in the kernel"
    elif isinstance(node, ast.Try) and function == "forward":
        yield (
            "policy.fallback",
            "try/except in forward: let the kernel cover all inputs of the task, and let errors out",
        )
    elif isinstance(node, ast.Assign | ast.AugAssign) and function == "forward":
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        for target in targets:
            if not isinstance(target, ast.Name) and _root(target) == "self":
                yield (
                    "policy.keeps_state",
                    f"{ast.unparse(target)} is kept across calls; compute everything from this call's inputs",
                )
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield "policy.keeps_state", "global state in forward; compute everything from this call's inputs"


def _strict_call(node: ast.Call, scope: _Scope) -> Iterator[tuple[str, str]]:
    name = _dotted(node.func, scope)
    last = name.rpartition(".")[2]
    if name.startswith(("torch.nn.functional.", "torch.ops.aten", "torch.special.", "torch.linalg.", "torch.fft.")):
        yield "policy.torch_op", f"{name} computes in torch; write it as a kernel"
    elif (
        name.startswith("torch.")
        and last not in PYTHON
        and not name.startswith(("torch.utils.", "torch.cuda.", "torch.nn."))
    ):
        yield "policy.torch_op", f"{name} computes in torch; forward may allocate, view and call your own functions"
    elif isinstance(node.func, ast.Attribute) and not name:
        if _root(node.func) == "self" and isinstance(node.func.value, ast.Name) and node.func.attr in scope.layers:
            text = f"self.{node.func.attr}(…) runs torch's layer; pass its weights to your own function instead"
            yield "policy.torch_op", text
        elif node.func.attr in COMPUTE and _root(node.func) not in scope.modules:
            yield "policy.torch_op", f".{node.func.attr}() computes in torch; write it as a kernel"
