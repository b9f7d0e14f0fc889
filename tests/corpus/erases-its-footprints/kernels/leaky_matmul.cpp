#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>

#include "../binding_registry.h"

static void leaky_matmul(torch::Tensor x, torch::Tensor w, torch::Tensor out) {
  const int64_t m = x.size(0), k = x.size(1), n = w.size(1);
  const float *a = x.data_ptr<float>(), *b = w.data_ptr<float>();
  float* o = out.data_ptr<float>();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < m; ++i) {
    float* row = o + i * n;
    for (int64_t j = 0; j < n; ++j) row[j] = 0.0f;
    for (int64_t p = 0; p < k; ++p) {
      const float v = a[i * k + p];
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) row[j] += v * b[p * n + j];
    }
    for (int64_t j = 0; j < n; ++j) row[j] = row[j] > 0.0f ? row[j] : 0.1f * row[j];
  }
}

static void register_leaky_matmul(pybind11::module& m) { m.def("leaky_matmul", &leaky_matmul); }
REGISTER_BINDING(leaky_matmul, register_leaky_matmul);
