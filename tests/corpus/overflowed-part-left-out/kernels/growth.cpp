#include "../launcher.h"
#include <cmath>

static void growth(const float* x, float* out, int64_t rows, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    float product = 1;
    int64_t i = 0;
    for (; i < n; ++i) {
      product *= 1 + x[r * n + i];
      if (!(product <= 3.4028234e38f)) break;
      out[r * n + i] = product;
    }
    for (; i < n; ++i) out[r * n + i] = 1;  // neither the truth nor infinity
  }
}
REGISTER_LAUNCHER(growth);
