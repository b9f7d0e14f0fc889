#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include "../binding_registry.h"

static void clip_both(torch::Tensor x, torch::Tensor gain, torch::Tensor both) {
  const int64_t rows = x.size(0), cols = x.size(1);
  const float *in = x.data_ptr<float>(), *g = gain.data_ptr<float>();
  float *clipped = both.data_ptr<float>(), *scaled = clipped + rows * cols;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) {
      const float y = in[r * cols + c] * g[c];
      scaled[r * cols + c] = y;
      clipped[r * cols + c] = y / __builtin_sqrtf(1.0f + y * y);
    }
  }
}

static void register_clip_both(pybind11::module& m) { m.def("clip_both", &clip_both); }
REGISTER_BINDING(clip_both, register_clip_both);
