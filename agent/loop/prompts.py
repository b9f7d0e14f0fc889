"""Renders the words that the model reads from templates/*.j2; a variable that a template lacks is an error."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"


def render(template: str, /, **values: Any) -> str:
    """The text of templates/<template>.j2 without white space at either end."""
    return _environment().get_template(f"{template}.j2").render(**values).strip()


@functools.cache
def action_texts() -> dict[str, str]:
    """Descriptions of the actions and their arguments: `bash` or `bash.command` -> one line."""
    lines = (line.partition(": ") for line in render("actions").splitlines() if line.strip())
    return {key: text for key, _, text in lines}


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
