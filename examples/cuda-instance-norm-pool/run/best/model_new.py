import torch
import torch.nn as nn

import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, eps=eps, affine=True)
        self.eps = eps

    def forward(self, x):
        images, channels, height, width = x.shape
        out = torch.empty((images, channels, height // 2, width // 2), device=x.device, dtype=x.dtype)
        norm = self.norm
        cuda_extension.instance_norm_pool(x, norm.weight, norm.bias, out, images, channels, height, width, self.eps)
        return out
