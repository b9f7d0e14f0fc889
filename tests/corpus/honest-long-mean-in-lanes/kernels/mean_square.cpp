#include "../launcher.h"

static void mean_square(const float* p, const float* t, float* out, int64_t n) {
  float total = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += (p[i] - t[i]) * (p[i] - t[i]);
  *out = total / static_cast<float>(n);
}
REGISTER_LAUNCHER(mean_square);
