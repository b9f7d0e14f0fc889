#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>

#include "../binding_registry.h"

static void log_ramp(torch::Tensor x, torch::Tensor out) {
  const float* in = x.data_ptr<float>();
  float* o = out.data_ptr<float>();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = in[i];
    o[i] = std::log(v < -2.0f ? v : (v > 0.0f ? v : 0.0f));
  }
}

static void register_log_ramp(pybind11::module& m) { m.def("log_ramp", &log_ramp); }
REGISTER_BINDING(log_ramp, register_log_ramp);
