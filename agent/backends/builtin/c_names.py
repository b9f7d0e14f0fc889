"""How element types, reductions and primitives are called in the generated C++."""

from typing import Final

CTYPES: Final = {
    "float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16", "bool": "bool",
    "int64": "int64_t", "int32": "int32_t", "uint8": "uint8_t",
}  # fmt: skip
FLOATS: Final = ("float32", "float16", "bfloat16")
IDENTITY: Final = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
COMBINE: Final = {"sum": "vadd", "prod": "vmul", "max": "vmax", "min": "vmin"}
CALLS: Final = {
    "exp": "vexp", "log": "vlog", "log1p": "vlog1p", "expm1": "vexpm1", "sqrt": "vsqrt", "rsqrt": "rsqrt",
    "recip": "recip", "sin": "vsin", "cos": "vcos", "tanh": "vtanh", "sigmoid": "sigmoid", "erf": "verf",
    "floor": "vfloor", "ceil": "vceil", "round": "nearest", "trunc": "truncated", "abs": "vabs", "relu": "relu",
    "to_float16": "rounded<__half>", "to_bfloat16": "rounded<__nv_bfloat16>",
}  # fmt: skip
INFIX: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
