"""cuda-agent: a language model turns a PyTorch model.py into faster kernels, and has to prove it."""

__version__ = "0.1.0"
