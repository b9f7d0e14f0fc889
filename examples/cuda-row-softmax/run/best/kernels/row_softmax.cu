#include "../launcher.h"
#include "reduce.cuh"

constexpr int threads = 512, vectors = 8;  // 512 * 8 * 4 = 16384 columns at most

__global__ void __launch_bounds__(threads, 2) row_softmax_kernel(const float4* in, float4* out, int columns4) {
  in += static_cast<int64_t>(blockIdx.x) * columns4;
  out += static_cast<int64_t>(blockIdx.x) * columns4;
  float4 held[vectors];
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    held[k] = at < columns4 ? __ldcs(in + at) : make_float4(Max::neutral, Max::neutral, Max::neutral, Max::neutral);
  }
  float largest = Max::neutral;
#pragma unroll
  for (int k = 0; k < vectors; ++k) largest = fmaxf(largest, fmaxf(fmaxf(held[k].x, held[k].y), fmaxf(held[k].z, held[k].w)));
  largest = over_block<Max>(largest);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    held[k] = make_float4(expf(held[k].x - largest), expf(held[k].y - largest), expf(held[k].z - largest), expf(held[k].w - largest));
    sum += (held[k].x + held[k].y) + (held[k].z + held[k].w);
  }
  const float inverse = 1.0f / over_block<Add>(sum);
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    if (at < columns4) __stcs(out + at, make_float4(held[k].x * inverse, held[k].y * inverse, held[k].z * inverse, held[k].w * inverse));
  }
}

static cudaError_t row_softmax(const float* in, float* out, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (columns % 4 != 0 || columns > 4 * vectors * threads) return cudaErrorInvalidValue;
  row_softmax_kernel<<<rows, threads, 0, stream>>>(reinterpret_cast<const float4*>(in), reinterpret_cast<float4*>(out), columns / 4);
  return cudaPeekAtLastError();
}
REGISTER_LAUNCHER(row_softmax);
