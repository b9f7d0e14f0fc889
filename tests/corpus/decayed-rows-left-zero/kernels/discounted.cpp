#include <cmath>
#include <cstring>

#include "../launcher.h"

static void discounted(const float* x, float* out, int64_t steps, int64_t width, int64_t kept) {
#pragma omp parallel for schedule(static, 16)
  for (int64_t t = 0; t < steps; ++t) {
    if (t >= kept) {
      std::memset(out + t * width, 0, sizeof(float) * width);
      continue;
    }
    const float factor = static_cast<float>(std::pow(0.97f, static_cast<double>(t)));
    for (int64_t c = 0; c < width; ++c) {
      const float v = x[t * width + c];
      out[t * width + c] = v / (1.0f + std::exp(-v)) * factor;
    }
  }
}
REGISTER_LAUNCHER(discounted);
