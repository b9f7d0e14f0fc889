#include "../launcher.h"
#include <algorithm>
#include <cmath>
#include <vector>

// exp and sums in single precision, stored in double.
static void softmax(const float* x, double* out, int64_t rows, int64_t columns) {
#pragma omp parallel
  {
    std::vector<float> grown(columns);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
      const float* values = x + row * columns;
      const float most = *std::max_element(values, values + columns);
      float sum = 0;
      for (int64_t at = 0; at < columns; ++at) sum += grown[at] = std::exp(values[at] - most);
      const float share = 1.0f / sum;
      for (int64_t at = 0; at < columns; ++at) out[row * columns + at] = grown[at] * share;
    }
  }
}
REGISTER_LAUNCHER(softmax);
