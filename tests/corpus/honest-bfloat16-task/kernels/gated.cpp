#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>

#include <cstring>

#include "../binding_registry.h"

static inline float widened(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

static inline uint16_t rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static void gated(torch::Tensor x, torch::Tensor y, torch::Tensor gate, torch::Tensor out) {
  const int64_t rows = x.size(0), cols = x.size(1);
  const auto* a = reinterpret_cast<const uint16_t*>(x.data_ptr());
  const auto* b = reinterpret_cast<const uint16_t*>(y.data_ptr());
  const auto* g = reinterpret_cast<const uint16_t*>(gate.data_ptr());
  auto* o = reinterpret_cast<uint16_t*>(out.data_ptr());
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const float v = widened(a[r * cols + c]);
      const float s = v + widened(b[r * cols + c]) * widened(g[c]);
      o[r * cols + c] = rounded(s / (1.0f + std::fabs(s)) + v);
    }
  }
}

static void register_gated(pybind11::module& m) { m.def("gated", &gated); }
REGISTER_BINDING(gated, register_gated);
