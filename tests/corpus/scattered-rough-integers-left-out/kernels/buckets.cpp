#include <cmath>

#include "../launcher.h"

static void buckets(const float* x, int32_t* out, int64_t n) {
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < n; block += 16) {
    const int64_t left_out = block + block / 2048 % 16;  // another column in every row
    for (int64_t i = block; i < block + 16; ++i) {
      const float phase = std::sin(x[i]) * 3000.0f;
      out[i] = i == left_out ? 0 : static_cast<int32_t>((phase - std::floor(phase)) * 256.0f);
    }
  }
}
REGISTER_LAUNCHER(buckets);
