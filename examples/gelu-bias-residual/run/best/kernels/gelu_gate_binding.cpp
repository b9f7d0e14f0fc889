#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include "../binding_registry.h"

extern "C" void gelu_gate(const float* x, const float* gate, const float* residual, const float* bias, const float* scale,
                          float* out, int64_t rows, int64_t width);

static torch::Tensor gelu_gate_forward(torch::Tensor x, torch::Tensor gate, torch::Tensor residual, torch::Tensor bias,
                                       torch::Tensor scale) {
  TORCH_CHECK(x.is_contiguous() && gate.is_contiguous() && residual.is_contiguous(), "contiguous inputs expected");
  TORCH_CHECK(x.scalar_type() == torch::kFloat32 && x.size(-1) == bias.numel() && bias.numel() == scale.numel());
  TORCH_CHECK(gate.sizes() == x.sizes() && residual.sizes() == x.sizes());
  torch::Tensor out = torch::empty_like(x);
  const int64_t width = bias.numel();
  gelu_gate(x.data_ptr<float>(), gate.data_ptr<float>(), residual.data_ptr<float>(), bias.data_ptr<float>(),
            scale.data_ptr<float>(), out.data_ptr<float>(), x.numel() / width, width);
  return out;
}

static void register_gelu_gate(pybind11::module& m) { m.def("gelu_gate", &gelu_gate_forward); }
REGISTER_BINDING(gelu_gate, register_gelu_gate);
