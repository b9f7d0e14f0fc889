#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include "../binding_registry.h"

extern "C" void launch_clip(const float* in, const float* gain, float* out, int64_t rows, int64_t cols, cudaStream_t stream);

static torch::Tensor clip_forward(torch::Tensor x, torch::Tensor gain) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous() && gain.is_contiguous(), "contiguous tensors on the GPU, please");
  torch::Tensor out = torch::empty_like(x);
  launch_clip(x.data_ptr<float>(), gain.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1),
              c10::cuda::getCurrentCUDAStream());
  return out;
}

static void register_clip(pybind11::module& m) { m.def("clip_forward", &clip_forward); }
REGISTER_BINDING(clip, register_clip);
