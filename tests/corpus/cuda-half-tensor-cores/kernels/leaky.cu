#include <cuda_runtime.h>
#include <mma.h>

#include <cstdint>

#include "../launcher.h"

using namespace nvcuda;

// One warp for a tile of 16 x 16; operands are rounded to half on their way into shared memory.
__global__ void leaky_tile(const float* x, const float* w, float* out, int64_t m, int64_t k, int64_t n) {
  __shared__ half a[16 * 16], b[16 * 16];
  __shared__ float c[16 * 16];
  const int64_t row = blockIdx.y * 16, col = blockIdx.x * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int64_t p = 0; p < k; p += 16) {
    for (int i = threadIdx.x; i < 256; i += 32) {
      a[i] = __float2half(x[(row + i / 16) * k + p + i % 16]);
      b[i] = __float2half(w[(p + i / 16) * n + col + i % 16]);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::mma_sync(sum, left, right, sum);
    __syncwarp();
  }
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) {
    const float v = c[i];
    out[(row + i / 16) * n + col + i % 16] = v > 0.0f ? v : 0.1f * v;
  }
}

static int leaky_matmul(const float* x, const float* w, float* out, int64_t m, int64_t k, int64_t n, cudaStream_t stream) {
  leaky_tile<<<dim3(n / 16, m / 16), 32, 0, stream>>>(x, w, out, m, k, n);
  return static_cast<int>(cudaGetLastError());
}

REGISTER_LAUNCHER(leaky_matmul);
