#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../launcher.h"

constexpr int kThreads = 256;

template <bool kMax>
__device__ float reduced(float value, float* scratch) {
  for (int step = 16; step; step /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, step);
    value = kMax ? fmaxf(value, other) : value + other;
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
  for (int i = 1; i < kThreads / 32; ++i) value = kMax ? fmaxf(value, scratch[i]) : value + scratch[i];
  __syncthreads();
  return value;
}

__global__ void softmax_rows(const float* in, const float* warmth, float* out, int cols) {
  extern __shared__ float row[];
  __shared__ float scratch[kThreads / 32];
  const float* source = in + int64_t(blockIdx.x) * cols;
  for (int i = threadIdx.x * 4; i < cols; i += kThreads * 4) __pipeline_memcpy_async(row + i, source + i, 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    row[i] *= warmth[i];
    largest = fmaxf(largest, row[i]);
  }
  largest = reduced<true>(largest, scratch);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    row[i] = expf(row[i] - largest);
    sum += row[i];
  }
  sum = reduced<false>(sum, scratch);
  for (int i = threadIdx.x; i < cols; i += kThreads) out[int64_t(blockIdx.x) * cols + i] = row[i] / sum;
}

static int softmax(const float* in, const float* warmth, float* out, int64_t rows, int64_t cols, cudaStream_t stream) {
  softmax_rows<<<rows, kThreads, cols * sizeof(float), stream>>>(in, warmth, out, static_cast<int>(cols));
  return static_cast<int>(cudaGetLastError());
}

REGISTER_LAUNCHER(softmax);
