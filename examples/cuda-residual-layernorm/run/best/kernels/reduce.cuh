// Sums and maxima over a block of up to 1024 threads; every thread gets the result.
#pragma once

#include <cuda_runtime.h>

struct Add {
  static constexpr float neutral = 0.0f;
  __device__ static float join(float a, float b) { return a + b; }
};

struct Max {
  static constexpr float neutral = -3.402823466e38f;
  __device__ static float join(float a, float b) { return fmaxf(a, b); }
};

template <typename Op>
__device__ inline float over_warp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

template <typename Op>
__device__ inline float over_block(float value) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = over_warp<Op>(value);
  __syncthreads();  // the last use of `partial` must be over
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return over_warp<Op>(lane < warps ? partial[lane] : Op::neutral);
}
