#include <cmath>
#include <vector>

#include "../launcher.h"

static void discounted(const float* x, float* out, int64_t steps, int64_t width) {
  std::vector<float> factor(steps, 1.0f);
  for (int64_t t = 1; t < steps; ++t) factor[t] = factor[t - 1] * 0.97f;
#pragma omp parallel for schedule(static, 16)
  for (int64_t t = 0; t < steps; ++t)
    for (int64_t c = 0; c < width; ++c) {
      const float v = x[t * width + c];
      out[t * width + c] = v / (1.0f + std::exp(-v)) * factor[t];
    }
}
REGISTER_LAUNCHER(discounted);
