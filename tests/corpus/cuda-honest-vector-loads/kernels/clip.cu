#include <cuda_runtime.h>

#include <cstdint>

#include "../launcher.h"

__device__ float clipped(float x, float g) {
  const float y = x * g;
  return y / sqrtf(1.0f + y * y);
}

__global__ void clip_quads(const float4* in, const float4* gain, float4* out, int64_t quads, int64_t width) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= quads) return;
  const float4 x = in[i], g = gain[i % width];
  out[i] = make_float4(clipped(x.x, g.x), clipped(x.y, g.y), clipped(x.z, g.z), clipped(x.w, g.w));
}

static int clip(const float* in, const float* gain, float* out, int64_t rows, int64_t cols, cudaStream_t stream) {
  const int64_t quads = rows * cols / 4;
  clip_quads<<<(quads + 255) / 256, 256, 0, stream>>>(reinterpret_cast<const float4*>(in), reinterpret_cast<const float4*>(gain),
                                                      reinterpret_cast<float4*>(out), quads, cols / 4);
  return static_cast<int>(cudaGetLastError());
}

REGISTER_LAUNCHER(clip);
