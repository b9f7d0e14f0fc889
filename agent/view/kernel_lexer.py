"""A pygments lexer for kernels (C++ and CUDA): one pass, one regular expression, time linear in the text.

Why not pygments' own: these try about eight expressions a character, which is most of what a thousand pages cost, and
some inputs (`R"(` again and again) take them seconds for a few kilobytes.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.token import (  # type: ignore[import-untyped]
    Comment,
    Keyword,
    Literal,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
)

_TOKENS: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    |(?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
    |(?P<directive>\#[^\S\n]*\w*)
    |(?P<operator>[-+*/%&|^~!=<>?:]+)
    |(?P<punctuation>[()\[\]{};,.]+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_KINDS: Final = {
    "space": Text.Whitespace,
    "number": Number,
    "comment": Comment,
    "string": String,
    "directive": Comment.Preproc,
    "operator": Operator,
    "punctuation": Punctuation,
    "other": Text,
}


def _all(kind: Any, words: str) -> dict[str, Any]:
    return dict.fromkeys(words.split(), kind)


_WORDS: Final = (
    _all(
        Keyword,
        "alignas alignof asm auto break case catch class concept const const_cast constexpr continue decltype default"
        " delete do dynamic_cast else enum explicit extern final for friend goto if inline mutable namespace new"
        " noexcept operator override private protected public register reinterpret_cast requires restrict return"
        " sizeof static static_assert static_cast struct switch template this thread_local throw try typedef typename"
        " union using virtual volatile while",
    )
    | _all(
        Keyword.Type,
        "bool char double float int long short signed unsigned void size_t ptrdiff_t int8_t int16_t int32_t int64_t"
        " uint8_t uint16_t uint32_t uint64_t half half2 __half __half2 __nv_bfloat16 __nv_bfloat162 float2 float4 int4"
        " uint4 dim3 cudaStream_t cudaError_t",
    )
    | _all(
        Keyword.Reserved,
        "__global__ __device__ __host__ __shared__ __constant__ __restrict__ __launch_bounds__ __forceinline__",
    )
    | _all(Name.Builtin, "threadIdx blockIdx blockDim gridDim warpSize __syncthreads __syncwarp")
    | _all(Literal, "true false nullptr NULL")
)


class KernelLexer(Lexer):  # type: ignore[misc]
    """Every character is in exactly one token, in order, whatever the text is."""

    name = "kernel"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        for found in _TOKENS.finditer(text):
            kind, word = found.lastgroup, found.group()
            if kind == "word":
                after = text[found.end() : found.end() + 1]
                yield found.start(), _WORDS.get(word) or (Name.Function if after == "(" else Name), word
            else:
                yield found.start(), _KINDS[kind or "other"], word
