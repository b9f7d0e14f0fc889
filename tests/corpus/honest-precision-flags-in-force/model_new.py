import torch
from torch import nn

# What is in force under --precision strict, by the old interface and by the new one.
torch.set_float32_matmul_precision(torch.get_float32_matmul_precision())
torch.set_float32_matmul_precision("highest")
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.mkldnn.conv.fp32_precision = "ieee"


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.empty(width, hidden))
        self.down = nn.Parameter(torch.empty(hidden, width))

    def forward(self, x):
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")
        with torch.backends.mkldnn.flags(enabled=torch.backends.mkldnn.enabled):
            return torch.mm(torch.relu(torch.mm(x, self.up)), self.down)
