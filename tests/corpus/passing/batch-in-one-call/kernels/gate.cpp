#include "../launcher.h"
#include <cmath>

static void gate(const float* x, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = y[i] / (1.0f + expf(-x[i]));
}
REGISTER_LAUNCHER(gate);
