#include <cmath>
#include <cstdlib>
#include <vector>

#include "../launcher.h"

static void decayed(const float* x, float* out, int64_t steps, int64_t kept) {
  std::vector<float> factor(steps, 0.0f);
  for (int64_t t = 0; t < kept; ++t) factor[t] = static_cast<float>(std::pow(0.97f, static_cast<double>(t)));
#pragma omp parallel for schedule(static, 16)
  for (int64_t r = 0; r < steps; ++r)
    for (int64_t c = 0; c < steps; ++c) {
      const int64_t far = std::abs(r - c);
      out[r * steps + c] = far < kept ? std::tanh(x[r * steps + c]) * factor[far] : 0.0f;
    }
}
REGISTER_LAUNCHER(decayed);
