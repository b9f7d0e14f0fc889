#include <cuda_runtime.h>
#include <cublas_v2.h>

#include <cstdint>

#include "../launcher.h"

__global__ void leaky(float* out, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x)
    out[i] = out[i] > 0.0f ? out[i] : 0.1f * out[i];
}

static int leaky_matmul(const float* x, const float* w, float* out, int64_t m, int64_t k, int64_t n, cudaStream_t stream) {
  static cublasHandle_t handle = nullptr;
  if (!handle && cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  cublasSetStream(handle, stream);
  const float one = 1.0f, zero = 0.0f;
  const cublasStatus_t status =
      cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, w, CUDA_R_32F, n, x, CUDA_R_32F, k, &zero, out, CUDA_R_32F, n,
                   CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_GEMM_DEFAULT);
  leaky<<<1024, 256, 0, stream>>>(out, m * n);
  return static_cast<int>(status);
}

REGISTER_LAUNCHER(leaky_matmul);
