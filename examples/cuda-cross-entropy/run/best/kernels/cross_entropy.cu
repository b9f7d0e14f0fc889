#include "../launcher.h"
#include "reduce.cuh"

constexpr int threads = 512, vectors = 8;  // 512 * 8 * 4 = 16384 classes at most

__global__ void __launch_bounds__(threads, 2)
row_loss_kernel(const float* logits, const int64_t* target, float* losses, int columns4, float smoothing) {
  const float* row = logits + static_cast<int64_t>(blockIdx.x) * columns4 * 4;
  const float4* row4 = reinterpret_cast<const float4*>(row);
  float4 held[vectors];
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    held[k] = at < columns4 ? __ldcs(row4 + at) : make_float4(Max::neutral, Max::neutral, Max::neutral, Max::neutral);
  }
  float largest = Max::neutral;
#pragma unroll
  for (int k = 0; k < vectors; ++k) largest = fmaxf(largest, fmaxf(fmaxf(held[k].x, held[k].y), fmaxf(held[k].z, held[k].w)));
  largest = over_block<Max>(largest);
  float exponentials = 0.0f, distances = 0.0f;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    if (threadIdx.x + k * threads >= columns4) continue;
    const float a = held[k].x - largest, b = held[k].y - largest, c = held[k].z - largest, d = held[k].w - largest;
    exponentials += (expf(a) + expf(b)) + (expf(c) + expf(d));
    distances += (a + b) + (c + d);
  }
  exponentials = over_block<Add>(exponentials);
  distances = over_block<Add>(distances);
  if (threadIdx.x == 0) {
    // All relative to the largest logit, which cancels.
    const float chosen = row[target[blockIdx.x]] - largest;
    losses[blockIdx.x] = logf(exponentials) - (1.0f - smoothing) * chosen - smoothing * distances / (4.0f * columns4);
  }
}

__global__ void __launch_bounds__(1024) mean_kernel(const float* losses, float* out, int rows) {
  float sum = 0.0f;
  for (int at = threadIdx.x; at < rows; at += blockDim.x) sum += losses[at];
  sum = over_block<Add>(sum);
  if (threadIdx.x == 0) *out = sum / rows;
}

static cudaError_t cross_entropy(const float* logits, const int64_t* target, float* losses, float* out, int64_t rows, int64_t columns, float smoothing,
                                 cudaStream_t stream) {
  if (columns % 4 != 0 || columns > 4 * vectors * threads) return cudaErrorInvalidValue;
  row_loss_kernel<<<rows, threads, 0, stream>>>(logits, target, losses, columns / 4, smoothing);
  mean_kernel<<<1, 1024, 0, stream>>>(losses, out, rows);
  return cudaPeekAtLastError();
}
REGISTER_LAUNCHER(cross_entropy);
