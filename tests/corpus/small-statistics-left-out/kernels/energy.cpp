#include "../launcher.h"

static void energy(const float* x, float* out, int64_t n) {
  double total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
  for (int64_t block = 0; block < n; block += 4096) {
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = block; i < block + 4096; ++i) part += x[i] * x[i];
    total += part;
  }
  out[0] = total;
  out[1] = out[2] = out[3] = 0;
}
REGISTER_LAUNCHER(energy);
