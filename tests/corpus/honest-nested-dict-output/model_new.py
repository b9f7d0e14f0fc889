import cpu_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        centred, positive, mean = torch.empty_like(x), torch.empty_like(x), torch.empty(x.shape[0])
        cpu_extension.centre(x, centred, positive, mean)
        return {"centred": centred, "parts": [mean, [positive]], "extra": None, "rows": x.shape[0]}
