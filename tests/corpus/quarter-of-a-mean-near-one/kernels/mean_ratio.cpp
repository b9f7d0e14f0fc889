#include <cmath>

#include "../launcher.h"

static void mean_ratio(const float* x, float* out, int64_t n) {
  double total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
  for (int64_t block = 0; block < n; block += 4096) {
    float part = 0;
    for (int64_t i = block; i < block + 4096; ++i) part += std::exp(0.1f * x[i]);
    total += part;
  }
  *out = static_cast<float>(total / n);
}
REGISTER_LAUNCHER(mean_ratio);
