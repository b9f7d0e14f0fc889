"""Loads the words that a language model reads in this package from templates/*.j2."""

from functools import cache
from pathlib import Path
from typing import Any


def render_template(name: str, /, **values: Any) -> str:
    """Raises jinja2.UndefinedError for a value that the template needs and did not get."""
    return str(_environment().get_template(name).render(**values))


@cache
def _environment() -> Any:
    import jinja2

    folder = Path(__file__).with_name("templates")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        auto_reload=False,
    )
