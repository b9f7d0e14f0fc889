import torch
import torch.nn as nn

import cuda_extension


class ModelNew(nn.Module):
    def forward(self, scores):
        out = torch.empty_like(scores)
        cuda_extension.row_softmax(scores, out, scores.shape[0], scores.shape[1])
        return out
