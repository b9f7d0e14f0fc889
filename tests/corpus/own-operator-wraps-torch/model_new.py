import torch
from torch import Tensor, nn


@torch.library.custom_op("swift::leaky_matmul", mutates_args=())
def leaky_matmul(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(torch.mm(x, weight), 0.1)


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, hidden))

    def forward(self, x):
        return torch.ops.swift.leaky_matmul(x, self.weight)
