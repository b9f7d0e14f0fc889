import torch
import torch.nn as nn

import cuda_extension


class ModelNew(nn.Module):
    def __init__(self, smoothing):
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits, target):
        rows, classes = logits.shape
        losses = torch.empty(rows, device=logits.device, dtype=logits.dtype)
        out = torch.empty((), device=logits.device, dtype=logits.dtype)
        cuda_extension.cross_entropy(logits, target, losses, out, rows, classes, self.smoothing)
        return out
