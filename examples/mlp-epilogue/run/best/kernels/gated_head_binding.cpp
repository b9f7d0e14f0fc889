#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include "../binding_registry.h"

extern "C" void gated_head(const float* projected, const float* bias, const float* weight, const float* shift, float eps,
                           const float* head, const float* head_bias, float* out, int64_t rows, int64_t hidden,
                           int64_t scores);

static torch::Tensor gated_head_forward(torch::Tensor projected, torch::Tensor bias, torch::Tensor weight,
                                        torch::Tensor shift, double eps, torch::Tensor head, torch::Tensor head_bias) {
  const int64_t hidden = weight.numel(), scores = head_bias.numel(), rows = projected.numel() / (2 * hidden);
  TORCH_CHECK(projected.is_contiguous() && projected.scalar_type() == torch::kFloat32, "contiguous float32 expected");
  TORCH_CHECK(projected.size(-1) == 2 * hidden && bias.numel() == 2 * hidden && shift.numel() == hidden);
  TORCH_CHECK(head.is_contiguous() && head.size(0) == scores && head.size(1) == hidden);
  TORCH_CHECK(rows % 4 == 0 && scores % 4 == 0 && hidden % 16 == 0, "rows and scores by 4, hidden by 16");
  torch::Tensor out = torch::empty({rows, scores}, projected.options());
  gated_head(projected.data_ptr<float>(), bias.data_ptr<float>(), weight.data_ptr<float>(), shift.data_ptr<float>(),
             static_cast<float>(eps), head.data_ptr<float>(), head_bias.data_ptr<float>(), out.data_ptr<float>(), rows,
             hidden, scores);
  return out;
}

static void register_gated_head(pybind11::module& m) { m.def("gated_head", &gated_head_forward); }
REGISTER_BINDING(gated_head, register_gated_head);
