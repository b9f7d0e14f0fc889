#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include "../binding_registry.h"

static void leaky(torch::Tensor out) {
  float* o = out.data_ptr<float>();
  const int64_t count = out.numel();
#pragma omp parallel for simd
  for (int64_t i = 0; i < count; ++i) o[i] = o[i] > 0.0f ? o[i] : 0.1f * o[i];
}

static void register_leaky(pybind11::module& m) { m.def("leaky", &leaky); }
REGISTER_BINDING(leaky, register_leaky);
