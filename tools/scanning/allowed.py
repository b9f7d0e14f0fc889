"""Names that both scans agree on: what a forward may call under policy strict, and what computes."""

from typing import Final

from referee.policy import ALLOWED as OPERATORS

# Python-side names that are no operators: types, devices, metadata, autograd switches.
_PYTHON: Final = """
Size device dtype no_grad inference_mode is_tensor numel is_contiguous is_grad_enabled finfo iinfo get_device
element_size current_device current_stream dim ndimension size stride data_ptr type cpu cuda nelement is_cuda
get_num_threads storage_offset untyped_storage shape ndim is_floating_point
"""
_NATIVE: Final = """
parallel_for parallel_reduce get_num_threads get_thread_num in_parallel_region dtype device layout requires_grad
memory_format elementSize isFloatingType isIntegralType toString typeMetaToScalarType from_blob check_dim_size divup
get_device_index getCurrentCUDAStream getCurrentDeviceProperties getCurrentCUDABlasHandle
"""
# Methods and functions that compute; names that ordinary C++ containers or Python objects have too are left out.
_COMPUTE: Final = """
matmul mm bmm addmm addmv baddbmm einsum tensordot linear bilinear conv1d conv2d conv3d convolution softmax
log_softmax layer_norm group_norm batch_norm rms_norm instance_norm native_layer_norm scaled_dot_product_attention
relu relu_ gelu silu sigmoid sigmoid_ tanh tanh_ exp exp_ expm1 log1p sqrt_ rsqrt rsqrt_ softplus leaky_relu elu
hardtanh clamp clamp_ clamp_min clamp_max mul mul_ div div_ sub sub_ add_ addcmul addcdiv lerp mean var std
logsumexp cumsum cumprod argmax argmin topk sort masked_fill masked_fill_ where index_select gather scatter scatter_
scatter_add cat stack amax amin norm pow pow_ embedding max_pool2d avg_pool2d adaptive_avg_pool2d copy_ clone
"""
PYTHON: Final = OPERATORS | frozenset(_PYTHON.split())
NATIVE: Final = OPERATORS | frozenset(_NATIVE.split())
COMPUTE: Final = frozenset(_COMPUTE.split())
