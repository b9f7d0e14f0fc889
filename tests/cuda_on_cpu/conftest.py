"""Puts tools/ at the end of the path, and imports torch once without its notice about NumPy."""

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tools"), str(ROOT)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch  # noqa: F401
