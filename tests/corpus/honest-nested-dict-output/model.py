import torch
from torch import nn


class Model(nn.Module):
    """Centred rows with their means, in a dict."""

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        centred = x - mean
        return {"centred": centred, "parts": (mean.squeeze(1), [torch.relu(centred)]), "extra": None, "rows": x.shape[0]}


def get_inputs():
    return [torch.randn(1024, 768)]


def get_init_inputs():
    return []
