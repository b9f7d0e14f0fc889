"""Finds tools/, skills/, sandbox_image/, examples/: beside the package in a checkout, in agent/_assets in a wheel."""

from pathlib import Path
from typing import Final

NAMES: Final = ("tools", "skills", "sandbox_image", "examples")


def asset(name: str) -> Path:
    """Absolute path of one of NAMES. Raises FileNotFoundError when the installation is incomplete."""
    if name not in NAMES:
        raise ValueError(f"{name} is not an asset")
    package = Path(__file__).resolve().parent
    for candidate in (package / "_assets" / name, package.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"{name}/ is missing from this installation; reinstall cuda-agent")
