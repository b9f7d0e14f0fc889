#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>

#include "../binding_registry.h"

static void centre(torch::Tensor x, torch::Tensor centred, torch::Tensor positive, torch::Tensor mean) {
  const int64_t rows = x.size(0), cols = x.size(1);
  const float* in = x.data_ptr<float>();
  float *c = centred.data_ptr<float>(), *p = positive.data_ptr<float>(), *m = mean.data_ptr<float>();
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = in + r * cols;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < cols; ++j) sum += row[j];
    m[r] = sum / cols;
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) {
      const float v = row[j] - m[r];
      c[r * cols + j] = v;
      p[r * cols + j] = v > 0.0f ? v : 0.0f;
    }
  }
}

static void register_centre(pybind11::module& m) { m.def("centre", &centre); }
REGISTER_BINDING(centre, register_centre);
