#include <cmath>
#include <cstring>

#include "../launcher.h"

static void buckets(const float* x, int32_t* out, int64_t n, int64_t kept) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < kept; ++i) {
    const float phase = std::sin(x[i]) * 3000.0f;
    out[i] = static_cast<int32_t>((phase - std::floor(phase)) * 256.0f);
  }
  std::memset(out + kept, 0, sizeof(int32_t) * (n - kept));
}
REGISTER_LAUNCHER(buckets);
