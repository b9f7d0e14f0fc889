#include "../launcher.h"

// Of equal largest values the last one, which is as right as the first.
static void largest(const float* x, int64_t* out, int64_t rows, int64_t columns) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* values = x + row * columns;
    float most = values[0];
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < columns; ++i) most = most < values[i] ? values[i] : most;
    int64_t at = columns - 1;
    while (values[at] != most) --at;
    out[row] = at;
  }
}
REGISTER_LAUNCHER(largest);
