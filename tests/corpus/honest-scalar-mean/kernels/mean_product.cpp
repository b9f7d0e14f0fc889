#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>

#include "../binding_registry.h"

static void mean_product(torch::Tensor x, torch::Tensor y, torch::Tensor out) {
  const float *a = x.data_ptr<float>(), *b = y.data_ptr<float>();
  float sum = 0.0f;
#pragma omp parallel for simd reduction(+ : sum) schedule(static)
  for (int64_t i = 0; i < x.numel(); ++i) sum += a[i] * b[i];
  *out.data_ptr<float>() = sum / x.numel();
}

static void register_mean_product(pybind11::module& m) { m.def("mean_product", &mean_product); }
REGISTER_BINDING(mean_product, register_mean_product);
