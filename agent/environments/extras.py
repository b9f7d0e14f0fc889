"""Imports a trainer's library where it is needed; a missing one is a user's error that says what to install."""

import importlib
from typing import Any

from agent.errors import ConfigError, install


def extra(module: str, *, name: str) -> Any:
    """The module. Raises ConfigError where it, or something that it needs, is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise ConfigError(f"{missing} is not installed", hint=install(name)) from error
