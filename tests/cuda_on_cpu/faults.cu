// Launchers with one fault each, and one without.
#include "../launcher.h"

#include <cuda_runtime.h>

namespace {

__global__ void copy(const float* x, float* y, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) y[at] = x[at];
}
__global__ void copy_wide(const float* x, float* y) { __stcs(reinterpret_cast<float4*>(y) + threadIdx.x, __ldg(reinterpret_cast<const float4*>(x) + threadIdx.x)); }
__global__ void overwrite(const float* x) { const_cast<float*>(x)[threadIdx.x] = 1.0f; }
__global__ void reversed(const float* x, float* y, int wait) {
  __shared__ float row[64];
  row[threadIdx.x] = x[threadIdx.x];
  if (wait) __syncthreads();
  y[threadIdx.x] = row[63 - threadIdx.x];
}
__global__ void half_waits(float* y) {
  if (threadIdx.x < 40) __syncthreads();
  y[threadIdx.x] = 1.0f;
}
__global__ void sum(const float* x, float* y, int leave) {
  if (leave && threadIdx.x >= 20) return;
  float v = x[threadIdx.x];
  for (int offset = 16; offset; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  if (threadIdx.x == 0) *y = v;
}
__global__ void dynamic(const float* x, float* y) {
  extern __shared__ float held[];
  held[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = held[threadIdx.x ^ 1];
}
__global__ void first_come(float* y) {
  if (*y != *y) *y = float(blockIdx.x);
}

}  // namespace

static int plain(const float* x, float* y, int n, cudaStream_t stream) {
  copy<<<(n + 63) / 64, 64, 0, stream>>>(x, y, n);
  return cudaPeekAtLastError();
}
static void wide(const float* x, float* y, int offset) { copy_wide<<<1, 2>>>(x + offset, y); }
static void writes_input(const float* x) { overwrite<<<1, 8>>>(x); }
static void turns(const float* x, float* y, int wait) { reversed<<<1, 64>>>(x, y, wait); }
static void parts(float* y) { half_waits<<<1, 64>>>(y); }
static void sums(const float* x, float* y, int leave) { sum<<<1, 32>>>(x, y, leave); }
static int in_dynamic(const float* x, float* y, int bytes) {
  dynamic<<<1, 32, bytes>>>(x, y);
  return cudaPeekAtLastError();
}
static void racing(float* y) { first_come<<<4, 1>>>(y); }
REGISTER_LAUNCHER(plain);
REGISTER_LAUNCHER(wide);
REGISTER_LAUNCHER(writes_input);
REGISTER_LAUNCHER(turns);
REGISTER_LAUNCHER(parts);
REGISTER_LAUNCHER(sums);
REGISTER_LAUNCHER(in_dynamic);
REGISTER_LAUNCHER(racing);
