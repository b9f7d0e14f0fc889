#include "../launcher.h"

static void mean_square(const float* p, const float* t, float* out, int64_t n) {
  double total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
  for (int64_t block = 0; block < n; block += 4096) {
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = block; i < block + 4096; ++i) part += (p[i] - t[i]) * (p[i] - t[i]);
    total += part;
  }
  *out = static_cast<float>(total / n);
}
REGISTER_LAUNCHER(mean_square);
