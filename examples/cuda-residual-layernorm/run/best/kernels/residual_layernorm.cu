#include "../launcher.h"
#include "reduce.cuh"

constexpr int threads = 256, vectors = 4;  // 256 * 4 * 4 = 4096 columns at most

__device__ inline signed char steps(float value, float one) { return static_cast<signed char>(__float2int_rn(__fdiv_rn(value, one))); }

__global__ void __launch_bounds__(threads, 4)
residual_layernorm_kernel(const float4* update, const float4* residual, const float4* weight, const float4* bias, float4* total, char4* rounded,
                          float* step, int columns4, float eps) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * columns4;
  float4 held[vectors];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    held[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (at < columns4) {
      const float4 a = __ldcs(update + begin + at), b = __ldcs(residual + begin + at);
      held[k] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
      __stcs(total + begin + at, held[k]);
    }
    sum += (held[k].x + held[k].y) + (held[k].z + held[k].w);
  }
  const float columns = 4.0f * columns4;
  const float mean = over_block<Add>(sum) / columns;
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    if (threadIdx.x + k * threads >= columns4) continue;
    held[k] = make_float4(held[k].x - mean, held[k].y - mean, held[k].z - mean, held[k].w - mean);
    squares += (held[k].x * held[k].x + held[k].y * held[k].y) + (held[k].z * held[k].z + held[k].w * held[k].w);
  }
  const float scale = rsqrtf(over_block<Add>(squares) / columns + eps);
  float largest = 0.0f;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    if (at >= columns4) continue;
    const float4 w = __ldg(weight + at), b = __ldg(bias + at);
    held[k] = make_float4(fmaf(held[k].x * scale, w.x, b.x), fmaf(held[k].y * scale, w.y, b.y), fmaf(held[k].z * scale, w.z, b.z),
                          fmaf(held[k].w * scale, w.w, b.w));
    largest = fmaxf(fmaxf(largest, fmaxf(fabsf(held[k].x), fabsf(held[k].y))), fmaxf(fabsf(held[k].z), fabsf(held[k].w)));
  }
  const float one = over_block<Max>(largest) / 127.0f;
  if (threadIdx.x == 0) step[blockIdx.x] = one;
#pragma unroll
  for (int k = 0; k < vectors; ++k) {
    const int at = threadIdx.x + k * threads;
    if (at < columns4) __stcs(rounded + begin + at, make_char4(steps(held[k].x, one), steps(held[k].y, one), steps(held[k].z, one), steps(held[k].w, one)));
  }
}

static cudaError_t residual_layernorm(const float* update, const float* residual, const float* weight, const float* bias, float* total, int8_t* rounded,
                                      float* step, int64_t rows, int64_t columns, float eps, cudaStream_t stream) {
  if (columns % 4 != 0 || columns > 4 * vectors * threads) return cudaErrorInvalidValue;
  residual_layernorm_kernel<<<rows, threads, 0, stream>>>(
      reinterpret_cast<const float4*>(update), reinterpret_cast<const float4*>(residual), reinterpret_cast<const float4*>(weight),
      reinterpret_cast<const float4*>(bias), reinterpret_cast<float4*>(total), reinterpret_cast<char4*>(rounded), step, columns / 4, eps);
  return cudaPeekAtLastError();
}
REGISTER_LAUNCHER(residual_layernorm);
