#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include "../binding_registry.h"

extern "C" void masked_softmax(const float* scores, const float* mask, const float* slope, float scale, float* out,
                               int64_t heads, int64_t queries, int64_t keys);

static torch::Tensor masked_softmax_forward(torch::Tensor scores, torch::Tensor mask, torch::Tensor slope, double scale) {
  TORCH_CHECK(scores.dim() == 3 && scores.is_contiguous() && mask.is_contiguous(), "contiguous inputs expected");
  TORCH_CHECK(scores.scalar_type() == torch::kFloat32 && mask.scalar_type() == torch::kFloat32);
  const int64_t heads = scores.size(0), queries = scores.size(1), keys = scores.size(2);
  TORCH_CHECK(slope.numel() == heads && mask.size(0) == queries && mask.size(1) == keys);
  torch::Tensor out = torch::empty_like(scores);
  masked_softmax(scores.data_ptr<float>(), mask.data_ptr<float>(), slope.data_ptr<float>(), static_cast<float>(scale),
                 out.data_ptr<float>(), heads, queries, keys);
  return out;
}

static void register_masked_softmax(pybind11::module& m) { m.def("masked_softmax", &masked_softmax_forward); }
REGISTER_BINDING(masked_softmax, register_masked_softmax);
