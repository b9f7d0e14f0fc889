"""Code, diffs and outputs as HTML: escaped always, highlighted within a budget, cut where it is too long to read.

Covers: markup in code, control and direction characters (made visible), single lines of megabytes, inputs that make a
lexer slow (their size is bounded). Highlighting is pygments'; its budget keeps a thousand pages within seconds.
"""

import functools
from pathlib import PurePosixPath
from typing import Any, Final

from markupsafe import Markup, escape

from agent.ui.console import safe

CODE_CHARS: Final = 48_000
OUTPUT_CHARS: Final = 24_000
LINE_CHARS: Final = 1_200
LEXED_CHARS: Final = 24_000
"""Texts above this are shown plain: some inputs cost a lexer time that grows with the square of their length."""
PAGE_CHARS: Final = 400_000
STYLES: Final = ("default", "github-dark")

LANGUAGES: Final = {
    ".py": "python",
    ".cu": "cpp",
    ".cuh": "cpp",
    ".cpp": "cpp",
    ".cc": "cpp",
    ".cxx": "cpp",
    ".c": "cpp",
    ".h": "cpp",
    ".hpp": "cpp",
    ".sh": "bash",
}


class Highlighter:
    """Highlights until `budget` characters are used up; what comes after is shown plain."""

    def __init__(self, *, budget: int = PAGE_CHARS) -> None:
        self._left = budget
        self._done: set[tuple[str, str]] = set()

    def code(self, text: str, *, language: str) -> Markup:
        """A table of line numbers and code. `language` as pygments names it; empty: plain."""
        shown, note = cut(text, CODE_CHARS)
        body = self._body(shown, language)
        lines = shown.count("\n") + (not shown.endswith("\n"))
        numbers = "\n".join(map(str, range(1, lines + 1)))
        gutter = f'<pre class="ln" aria-hidden="true">{numbers}</pre>'
        return Markup(f'<div class="code">{gutter}<pre tabindex="0">{body}</pre></div>{note}')

    def _body(self, text: str, language: str) -> Markup:
        if not language or len(text) > LEXED_CHARS or _widest(text) > LINE_CHARS:
            return escape(text)
        if (text, language) not in self._done:
            if len(text) > self._left:
                return escape(text)
            self._left -= len(text)
            self._done.add((text, language))
        return highlighted(text, language)


@functools.lru_cache(maxsize=4096)
def highlighted(text: str, language: str) -> Markup:
    """`text` with pygments' short classes. The same text is often written, kept and submitted: once is enough."""
    from pygments import highlight  # type: ignore[import-untyped]

    lexer, formatter = _tools(language)
    return Markup(highlight(text, lexer, formatter))


def language_of(path: str) -> str:
    """pygments' name for what a file of this name holds; empty where it is not known."""
    return LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")


def diff(text: str) -> Markup:
    """A unified diff, one block per line, without its two head lines: the path stands above it."""
    shown, note = cut(text, CODE_CHARS)
    lines = str(escape(shown)).split("\n")
    if len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ "):
        lines = lines[2:]
    if lines and not lines[-1]:
        lines.pop()
    body = "".join(_diff_line(line) for line in lines)
    return Markup(f'<pre class="diff" tabindex="0">{body}</pre>{note}')


def output(text: str, *, limit: int = OUTPUT_CHARS) -> Markup:
    """What a command printed."""
    shown, note = cut(text, limit)
    return Markup(f'<pre class="out" tabindex="0">{escape(shown)}</pre>{note}')


def cut(text: str, limit: int) -> tuple[str, Markup]:
    """Head and tail of `text` made safe to show, and a remark where something was left out."""
    if len(text) <= limit:
        return safe(text), Markup("")
    tail = limit // 4
    left_out = len(text) - limit
    kept = safe(text[: limit - tail]) + f"\n[… {left_out:,} characters left out …]\n" + safe(text[-tail:])
    return kept, Markup('<p class="dim">{:,} of {:,} characters are not shown here.</p>').format(left_out, len(text))


@functools.cache
def code_css() -> str:
    """Colours for light and dark, from pygments' own styles."""
    from pygments.formatters.html import HtmlFormatter  # type: ignore[import-untyped]

    light, dark = ("\n".join(HtmlFormatter(style=style).get_token_style_defs(".code")) for style in STYLES)
    # What a lexer does not know is no error of the code.
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n.code .err {{ border: 0; color: inherit; }}\n"


@functools.cache
def _tools(language: str) -> tuple[Any, Any]:
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]

    from agent.view.kernel_lexer import KernelLexer

    # What is shown must be what was written: no line is added or taken away, and line numbers are counted elsewhere.
    options = {"stripnl": False, "ensurenl": False}
    lexer = KernelLexer(**options) if language == "cpp" else get_lexer_by_name(language, **options)
    return lexer, HtmlFormatter(nowrap=True)


def _diff_line(escaped: str) -> str:
    kind = {"+": "a", "-": "d", "@": "h"}.get(escaped[:1], "")
    return f'<span class="{kind}">{escaped}</span>\n' if kind else f"{escaped}\n"


def _widest(text: str) -> int:
    return max(map(len, text.split("\n")), default=0)
