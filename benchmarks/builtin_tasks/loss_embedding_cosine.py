"""Embeddings looked up for tokens, compared with targets by cosine."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SCALE = 1
ROWS, WIDTH = 8192, 256


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5000, WIDTH)

    def forward(self, tokens, y):
        return 1.0 - F.cosine_similarity(self.table(tokens), y, dim=-1)


def get_inputs():
    return [torch.randint(0, 5000, (ROWS * SCALE,)), torch.randn(ROWS * SCALE, WIDTH)]


def get_init_inputs():
    return []
