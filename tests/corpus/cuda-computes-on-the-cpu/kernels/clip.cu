#include <cuda_runtime.h>

#include <cmath>
#include <vector>

#include <cstdint>

#include "../launcher.h"


static int clip(const float* in, const float* gain, float* out, int64_t rows, int64_t cols, cudaStream_t stream) {
  const int64_t count = rows * cols;
  std::vector<float> x(count), g(cols);
  cudaMemcpyAsync(x.data(), in, count * sizeof(float), cudaMemcpyDeviceToHost, stream);
  cudaMemcpyAsync(g.data(), gain, cols * sizeof(float), cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) {
    const float y = x[i] * g[i % cols];
    x[i] = y / std::sqrt(1.0f + y * y);
  }
  cudaMemcpyAsync(out, x.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream);
  return static_cast<int>(cudaStreamSynchronize(stream));
}

REGISTER_LAUNCHER(clip);
