import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, recon, target, mu, logvar):
        out = torch.empty(())
        cpu_extension.loss(recon, target, out, recon.numel())
        return out
