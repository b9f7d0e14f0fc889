#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include <tuple>

#include "../binding_registry.h"

extern "C" void add_rmsnorm(const float* x, const float* residual, const float* weight, const float* bias, float eps,
                            float* out, float* sum, int64_t rows, int64_t width);

static std::tuple<torch::Tensor, torch::Tensor> add_rmsnorm_forward(torch::Tensor x, torch::Tensor residual,
                                                                    torch::Tensor weight, torch::Tensor bias, double eps) {
  TORCH_CHECK(x.is_contiguous() && residual.is_contiguous() && x.sizes() == residual.sizes(), "contiguous inputs expected");
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.size(-1) == weight.numel() && weight.numel() == bias.numel());
  torch::Tensor out = torch::empty_like(x);
  torch::Tensor sum = torch::empty_like(x);
  const int64_t width = weight.numel();
  add_rmsnorm(x.data_ptr<float>(), residual.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
              static_cast<float>(eps), out.data_ptr<float>(), sum.data_ptr<float>(), x.numel() / width, width);
  return {out, sum};
}

static void register_add_rmsnorm(pybind11::module& m) { m.def("add_rmsnorm", &add_rmsnorm_forward); }
REGISTER_BINDING(add_rmsnorm, register_add_rmsnorm);
