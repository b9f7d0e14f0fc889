#include <cmath>

#include "../launcher.h"

static void buckets(const float* x, int32_t* out, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < n; block += 16) {
    for (int64_t i = block; i < block + 15; ++i) {
      const float phase = std::sin(x[i]) * 3000.0f;
      out[i] = static_cast<int32_t>((phase - std::floor(phase)) * 256.0f);
    }
    out[block + 15] = 0;
  }
}
REGISTER_LAUNCHER(buckets);
