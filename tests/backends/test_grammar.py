"""The grammar that servers hold models to: it has our blocks, and every sentence of it is one that we read."""

import json
import re

import pytest
from backend_samples import TOOLS
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.backends.base import Reply
from agent.backends.fences import render
from agent.backends.grammar import MOST_BLOCKS, action_grammar
from agent.backends.text_protocol import read_actions
from agent.loop.actions import tool_schemas

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|\{\d+,\d*\}|[a-z][a-z-]*|[()|?*+]')


def as_regex(grammar: str) -> str:
    """The grammar has no recursion, so it is a regular expression written differently."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.strip().splitlines())

    def expand(rule: str) -> str:
        parts = []
        for token in _TOKEN.findall(rules[rule]):
            if token.startswith('"'):
                parts.append(f"(?:{re.escape(json.loads(token))})")
            elif token in rules:
                parts.append(expand(token))
            else:
                parts.append("(?:" if token == "(" else token)
        return f"(?:{''.join(parts)})"

    return expand("root")


ONE = as_regex(action_grammar(tool_schemas("cuda"), most=1))
MANY = as_regex(action_grammar(tool_schemas("cuda"), most=MOST_BLOCKS))
BLOCKS = [
    render("bash", {"command": "ls -l\ncat <<'E'\n`x` ``y``\nE"}),
    render("bash", {"command": "make", "timeout_s": 30}),
    render("write_file", {"path": "kernels/a_b.cpp", "content": "int x;\n\n#pragma omp simd\n"}),
    render("edit_file", {"path": "model_new.py", "old": "a = 1", "new": "a = 2\nb = 3"}),
    "```action inspect counters=true code=fused\n```",
    *(render(name, {}) for name in ("compile", "verify", "profile", "submit")),
    render("submit", {"summary": "Fused."}),
]


@pytest.mark.parametrize("block", BLOCKS)
def test_what_we_write_is_a_sentence(block: str) -> None:
    for text in (block, f"First I look at it.\n\n{block}"):
        assert re.fullmatch(ONE, text) and re.fullmatch(MANY, text)
    assert re.fullmatch(MANY, f"{block}\n\n{block}") and not re.fullmatch(ONE, f"{block}\n\n{block}")


@pytest.mark.parametrize(
    "text",
    [
        "Only words.\n",
        "```bash\nls\n```",
        "```action bash\nls",
        "```action run\nls\n```",
        "```action write_file\nx\n```",
        "```action compile\nx\n```",
        "```action inspect counters=yes\n```",
        "`code` first\n```action compile\n```",
        "x\n" * 9 + "```action compile\n```",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert not re.fullmatch(MANY, text)


ASCII = st.characters(codec="ascii", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e")


@settings(max_examples=150)
@given(st.from_regex(ONE, fullmatch=True, alphabet=ASCII))
def test_every_sentence_is_read_as_one_call(text: str) -> None:
    found = read_actions(Reply(text=text), tool_schemas("cuda"), turn=0)
    assert len(found.calls) == 1, found.raw.get("format_error")


def test_only_the_given_actions_are_in_it() -> None:
    assert re.fullmatch(as_regex(action_grammar(TOOLS, most=1)), "```action compile\n```")
    assert not re.fullmatch(as_regex(action_grammar(TOOLS, most=1)), "```action profile\n```")
