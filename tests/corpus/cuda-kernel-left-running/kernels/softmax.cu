#include <cuda_runtime.h>
#include <math.h>
__global__ void softmax_rows(const float4* __restrict__ x, float4* __restrict__ y, int cols4) {
  const float4* row = x + (size_t)blockIdx.x * cols4;
  float4* out = y + (size_t)blockIdx.x * cols4;
  float4 v[4];
  float m = -INFINITY;
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = row[threadIdx.x + i * 256];
    v[i].x *= 0.5f; v[i].y *= 0.5f; v[i].z *= 0.5f; v[i].w *= 0.5f;
    m = fmaxf(m, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
  }
  __shared__ float s[8]; __shared__ float t;
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = m;
  __syncthreads();
  m = s[0]; for (int i = 1; i < 8; ++i) m = fmaxf(m, s[i]);
  float sum = 0.f;
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i].x = __expf(v[i].x - m); v[i].y = __expf(v[i].y - m); v[i].z = __expf(v[i].z - m); v[i].w = __expf(v[i].w - m);
    sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
  }
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  __syncthreads();
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.f; for (int i = 0; i < 8; ++i) sum += s[i];
  float r = 1.f / sum;
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i].x *= r; v[i].y *= r; v[i].z *= r; v[i].w *= r;
    out[threadIdx.x + i * 256] = v[i];
  }
}
extern "C" void launch_softmax(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  softmax_rows<<<rows, 256, 0, stream>>>((const float4*)x, (float4*)y, cols / 4);
}
