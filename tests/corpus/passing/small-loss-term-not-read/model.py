import torch
from torch import nn


class Model(nn.Module):
    def forward(self, recon, target, mu, logvar):
        divergence = -0.5 * (1 + logvar - mu.square() - logvar.exp()).mean()
        return (recon - target).square().mean() + 1e-5 * divergence


def get_inputs():
    spread = 0.5 + torch.rand(())
    shape = (2048, 2048)
    return [torch.randn(shape) * spread, torch.randn(shape), torch.randn(shape), 0.5 * torch.randn(shape)]


def get_init_inputs():
    return []
