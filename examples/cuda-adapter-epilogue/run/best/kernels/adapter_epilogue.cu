#include <cublas_v2.h>

#include "../launcher.h"
#include "reduce.cuh"

constexpr int threads = 256, vectors = 2;  // 256 * 2 * 4 = 2048 columns

__device__ inline float gelu(float x) {
  const float inner = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x);
  return 0.5f * x * (1.0f + tanhf(inner));
}

// `product` and `out` are the same memory: a block writes only the row that it has read as a whole.
__global__ void __launch_bounds__(threads, 6)
epilogue_kernel(const float4* product, const float4* bias, const float4* residual, const float4* weight, const float4* shift, float4* out, float eps) {
  constexpr int columns4 = threads * vectors;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * columns4;
  float4 held[vectors];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    const float4 p = product[begin + at], r = __ldcs(residual + begin + at), b = __ldg(bias + at);
    held[k] = make_float4(r.x + gelu(p.x + b.x), r.y + gelu(p.y + b.y), r.z + gelu(p.z + b.z), r.w + gelu(p.w + b.w));
    sum += (held[k].x + held[k].y) + (held[k].z + held[k].w);
  }
  const float mean = over_block<Add>(sum) / (4.0f * columns4);
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    held[k] = make_float4(held[k].x - mean, held[k].y - mean, held[k].z - mean, held[k].w - mean);
    squares += (held[k].x * held[k].x + held[k].y * held[k].y) + (held[k].z * held[k].z + held[k].w * held[k].w);
  }
  const float scale = rsqrtf(over_block<Add>(squares) / (4.0f * columns4) + eps);
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    const float4 w = __ldg(weight + at), s = __ldg(shift + at);
    __stcs(out + begin + at, make_float4(fmaf(held[k].x * scale, w.x, s.x), fmaf(held[k].y * scale, w.y, s.y), fmaf(held[k].z * scale, w.z, s.z),
                                         fmaf(held[k].w * scale, w.w, s.w)));
  }
}

static int adapter(const float* x, const float* up, const float* bias, const float* residual, const float* weight, const float* shift, float* out,
                   int64_t rows, int64_t columns, int64_t narrow, float eps, cudaStream_t stream) {
  if (columns != 4 * vectors * threads) return cudaErrorInvalidValue;
  static cublasHandle_t handle = nullptr;  // a handle holds no data of a call
  if (handle == nullptr && cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return cudaErrorUnknown;
  const float one = 1.0f, zero = 0.0f;
  // Row-major out = x * up^T is column-major out^T = up * x^T.
  if (cublasSetStream(handle, stream) != CUBLAS_STATUS_SUCCESS ||
      cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, columns, rows, narrow, &one, up, narrow, x, narrow, &zero, out, columns) != CUBLAS_STATUS_SUCCESS)
    return cudaErrorUnknown;
  epilogue_kernel<<<rows, threads, 0, stream>>>(reinterpret_cast<const float4*>(out), reinterpret_cast<const float4*>(bias),
                                                reinterpret_cast<const float4*>(residual), reinterpret_cast<const float4*>(weight),
                                                reinterpret_cast<const float4*>(shift), reinterpret_cast<float4*>(out), eps);
  return cudaPeekAtLastError();
}
REGISTER_LAUNCHER(adapter);
