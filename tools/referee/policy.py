"""What policy `strict` allows a forward to do with torch: allocate, look at metadata, take views; all else is the
submission's own code.

Evidence, from weak to strong: operators seen in the worker, undefined symbols of the rebuilt module, files mapped
executable.
"""

import re
from collections.abc import Iterable
from typing import Final

from referee import flags
from referee.outcome import Rejected

_ALLOCATION_NAMES: Final = """
empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like new_zeros zero_ zero ones
ones_like new_ones full full_like new_full fill_ fill resize_ scalar_tensor tensor set_ to_empty
"""
ALLOCATION: Final = frozenset(_ALLOCATION_NAMES.split())
_VIEWS_NAMES: Final = """
view reshape _reshape_alias _unsafe_view as_strided as_strided_ transpose transpose_ t t_ permute numpy_T mT adjoint
squeeze squeeze_ unsqueeze unsqueeze_ expand expand_as broadcast_to broadcast_tensors flatten unflatten ravel narrow
select slice split split_with_sizes chunk tensor_split unbind movedim moveaxis swapaxes swapdims diagonal unfold
view_as view_as_real view_as_complex real imag detach detach_ alias lift_fresh lift unsafe_split unsafe_chunk hsplit
vsplit dsplit contiguous requires_grad_ _version sym_size sym_stride sym_numel size stride numel dim is_contiguous
storage_offset data item _local_scalar_dense is_nonzero _to_cpu result_type is_floating_point is_complex
is_same_size _has_compatible_shallow_copy_type output_nr is_leaf resolve_conj resolve_neg to type_as positive conj
is_pinned atleast_1d atleast_2d atleast_3d is_inference is_neg is_conj expand_copy_noop unsafe_set_
"""
VIEWS: Final = frozenset(_VIEWS_NAMES.split())
ALLOWED: Final = ALLOCATION | VIEWS
_TORCH_NAMESPACES_NAMES: Final = """
aten prims quantized mkl mkldnn mkldnn_prepacked _quantized xnnpack fb c10d inductor rngprims sparse torch_attn
onednn prim profiler _test debugprims higher_order symm_mem static_runtime quantized_decomposed
"""
TORCH_NAMESPACES: Final = frozenset(_TORCH_NAMESPACES_NAMES.split())
_NAME: Final = re.compile(r"^([A-Za-z0-9_]+)(?:::|\.)([A-Za-z0-9_]+)")


def check_operators(names: Iterable[str]) -> None:
    """Raise for the torch operators that computed something."""
    found = sorted({f"{space}::{name}" for space, name in map(_parsed, names) if _computes(space, name)})
    if found:
        raise Rejected(
            "policy.torch_op",
            f"forward used torch's {', '.join(found[:8])}; "
            "under policy strict it may allocate, view and call its own compiled functions",
        )


def check_flags(names: Iterable[str]) -> None:
    """Raise where a precision flag was changed when an operator ran; the log has it beside the operators."""
    found = sorted(name.removeprefix(flags.LOGGED) for name in names if name.startswith(flags.LOGGED))
    if found:
        raise Rejected(
            "numeric.precision_flag",
            f"while an operator ran inside forward {', '.join(found)}; {flags.LEAVE_THEM}",
        )


# Kernels of torch that fill or copy: what allocation and `contiguous` launch.
_ALLOWED_KERNEL: Final = re.compile(r"FillFunctor|direct_copy_kernel|^Mem(cpy|set)\b")
_TORCH_KERNEL: Final = re.compile(
    r"at::native|at::cuda|at_cuda_detail|c10::cuda|pytorch_flash|fmha_|flash_fwd|triton_(poi|red|per|tem|for)_fused_"
)
# Allowed on target cuda when own native code calls them: GEMM and convolution.
_VENDOR_KERNEL: Final = re.compile(
    r"cublas|cutlass|gemm|gemv|cudnn|xmma|implicit_convolve|splitKreduce|winograd|nvjet", re.IGNORECASE
)


_FOREIGN_KERNEL: Final = re.compile(
    r"cudnn.*(softmax|activation|op_tensor|bn_fw|pooling|lrn|rnn)|cufft|cusparse|cusolver|curand", re.IGNORECASE
)


def check_kernels(kernels: list[tuple[str, int, float]], *, strict: bool) -> dict[str, float]:
    """Raise under strict for kernels of torch or of torch.compile that computed; otherwise microseconds by owner."""
    found = sorted({name for name, _, _ in kernels if _TORCH_KERNEL.search(name) and not _ALLOWED_KERNEL.search(name)})
    if found and strict:
        raise Rejected(
            "policy.torch_op",
            f"torch's kernels computed: {', '.join(name[:120] for name in found[:4])}; under policy strict the forward "
            "computes with its own compiled functions only",
        )
    foreign = sorted({name for name, _, _ in kernels if _FOREIGN_KERNEL.search(name)})
    if foreign and strict:
        raise Rejected(
            "policy.vendor_library",
            f"kernels of a vendor's library computed: {', '.join(name[:120] for name in foreign[:4])}; only cuBLAS for "
            "GEMM and cuDNN for convolution are allowed",
        )
    if not kernels:
        raise Rejected(
            "policy.no_kernel",
            "the profiler saw no kernel on the GPU during forward: nothing was computed there, or the profiler was "
            "kept from seeing it",
        )
    shares = {"own": 0.0, "vendor": 0.0, "torch": 0.0}
    for name, _, us in kernels:
        torch_own = _TORCH_KERNEL.search(name) or _ALLOWED_KERNEL.search(name)
        shares["torch" if torch_own else "vendor" if _VENDOR_KERNEL.search(name) else "own"] += us
    return shares


def _parsed(name: str) -> tuple[str, str]:
    match = _NAME.match(name)
    return (match.group(1), match.group(2)) if match else ("", name)


def _computes(space: str, name: str) -> bool:
    if space == "prim" or space == "profiler" or not space:
        return False
    return space in TORCH_NAMESPACES and name not in ALLOWED
