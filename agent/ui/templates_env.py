"""Renders the files in templates/: an undefined name is an error, HTML is escaped."""

from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(name: str, **values: Any) -> str:
    import jinja2

    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=lambda template: bool(template and template.endswith(".html.j2")),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return env.get_template(name).render(**values)
