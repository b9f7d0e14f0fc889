// What every source that speaks to torch begins with; precompiled where a warmed cache is at hand.
#pragma once

#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#if defined(AGENT_TARGET_CUDA) && __has_include(<c10/cuda/impl/cuda_cmake_macros.h>)
#include <cuda_runtime_api.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#if __has_include(<cublas_v2.h>) && __has_include(<cublasLt.h>) && __has_include(<cusparse.h>) && __has_include(<cusolverDn.h>)
#include <ATen/cuda/CUDAContext.h>
#endif
#endif
