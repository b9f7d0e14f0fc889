"""Renders the templates of both kinds of page; says what a page may load: nothing but what is written in it.

Covers: every value is escaped by jinja2, and the page's own Content-Security-Policy forbids whatever is not named by
its hash, so that a run cannot script the page that shows it. Does not cover: a viewer that ignores such policies.
"""

import base64
import functools
import hashlib
import json
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from agent.ui.quantities import show_cost, show_count, show_duration, show_us
from agent.view.code import code_css

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"


def render_page(name: str, **values: Any) -> str:
    """The page as text. Lone surrogates, which no encoding has, are written as escapes."""
    text = _environment().get_template(name).render(**values)
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def source(name: str) -> Markup:
    """A script or style sheet of ours, as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def data_block(value: Any) -> Markup:
    """JSON for a `<script type="application/json">`: no character in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def csp_hash(text: str) -> str:
    """The source expression that allows exactly this inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@functools.cache
def _environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = f"{source('style.css')}{code_css()}"
    env.globals.update(style=Markup(style), style_hash=Markup(csp_hash(style)))
    env.filters.update(us=show_us, count=show_count, cost=show_cost, duration=show_duration)
    return env
