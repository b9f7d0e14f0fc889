#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include "../binding_registry.h"

constexpr int64_t kPanel = 64;  // columns

static void pack(torch::Tensor w, torch::Tensor panels) {
  const int64_t k = w.size(0), n = w.size(1);
  TORCH_CHECK(n % kPanel == 0);
  const float* from = w.data_ptr<float>();
  float* to = panels.data_ptr<float>();
#pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < n; j += kPanel)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t c = 0; c < kPanel; ++c) to[j * k + p * kPanel + c] = from[p * n + j + c];
}

static void leaky_panels(torch::Tensor x, torch::Tensor panels, torch::Tensor out) {
  const int64_t m = x.size(0), k = x.size(1), n = out.size(1);
  const float *a = x.data_ptr<float>(), *w = panels.data_ptr<float>();
  float* o = out.data_ptr<float>();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += kPanel) {
      float sum[kPanel] = {};
      for (int64_t p = 0; p < k; ++p)
        for (int64_t c = 0; c < kPanel; ++c) sum[c] += a[i * k + p] * w[j * k + p * kPanel + c];
      for (int64_t c = 0; c < kPanel; ++c) o[i * n + j + c] = sum[c] > 0.0f ? sum[c] : 0.1f * sum[c];
    }
}

static void register_panels(pybind11::module& m) {
  m.def("pack", &pack);
  m.def("leaky_panels", &leaky_panels);
}
REGISTER_BINDING(panels, register_panels);
