import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>

__global__ void clip_kernel(const float* in, const float* gain, float* out, int64_t count, int64_t cols) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  const float y = in[i] * gain[i % cols];
  out[i] = y / sqrtf(1.0f + y * y);
}

torch::Tensor clip(torch::Tensor x, torch::Tensor gain) {
  auto out = torch::empty_like(x);
  const int64_t count = x.numel();
  clip_kernel<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), gain.data_ptr<float>(), out.data_ptr<float>(), count, x.size(1));
  return out;
}
"""
module = load_inline(
    name="clip_inline", cpp_sources="torch::Tensor clip(torch::Tensor x, torch::Tensor gain);", cuda_sources=CUDA, functions=["clip"]
)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return module.clip(x, self.gain)
