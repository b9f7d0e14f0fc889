"""Renders the templates of this package: kernels, bindings, modules and the words that the policy says."""

import functools
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).with_name("templates")


@functools.cache
def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(name: str, **values: Any) -> str:
    return str(_environment().get_template(name).render(**values))


def number(value: float) -> str:
    """A float literal of C++."""
    if value != value:
        return '__builtin_nanf("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inff()"
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"
