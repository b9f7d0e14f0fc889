"""Action blocks: what is written is read back exactly, and what cannot be read as meant is never guessed."""

from typing import Any

import pytest
from backend_samples import TOOLS
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.fences import FormatError, arguments, render, scan

SCHEMAS = {tool.name: tool for tool in TOOLS}
FENCED = st.lists(
    st.sampled_from(
        ["```", "````", "`````", "```action bash", "```cpp", "   ```", "=======", "<<<<<<< old", ">>>>>>> new"]
    )
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    max_size=6,
).map("\n".join)
PATHS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=15)
SECONDS = st.integers(1, 10_000) | st.floats(0.001, 1e6)
CALLS = st.one_of(
    st.tuples(st.just("bash"), st.fixed_dictionaries({"command": FENCED}, optional={"timeout_s": SECONDS})),
    st.tuples(st.just("write_file"), st.fixed_dictionaries({"path": PATHS, "content": FENCED})),
    st.tuples(st.just("edit_file"), st.fixed_dictionaries({"path": PATHS, "old": FENCED, "new": FENCED})),
    st.tuples(st.just("compile"), st.just({})),
    st.tuples(st.just("submit"), st.fixed_dictionaries({"summary": FENCED.filter(bool)})),
)
PROSE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="`"), max_size=20)


def read(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(block.name, arguments(block, SCHEMAS.get(block.name))) for block in scan(text).blocks]


@given(st.lists(st.tuples(PROSE, CALLS), min_size=1, max_size=4))
def test_what_is_written_is_read_back(parts: list[tuple[str, tuple[str, dict[str, Any]]]]) -> None:
    text = "\n".join(f"{prose}\n{render(name, values)}" for prose, (name, values) in parts)
    assert read(text) == [call for _, call in parts]


@given(st.text(st.sampled_from("`action bsh=\n<>x\"'{} "), max_size=80))
def test_no_text_crashes_the_parser(text: str) -> None:
    try:
        read(text)
    except FormatError as error:
        assert 1 <= error.line <= text.count("\n") + 1


def one(text: str) -> tuple[str, dict[str, Any]]:
    calls = read(text)
    assert len(calls) == 1
    return calls[0]


@pytest.mark.parametrize(
    "text",
    [
        "```action bash timeout_s=60\nls -l\n```",
        "Let me look.\n\n```Action BASH timeout_s=60\nls -l\n```\n",
        "```action bash timeout_s='60'\nls -l\n```",
        '```action: bash timeout_s="60"\nls -l\n```',
        "```action bash timeout_s=60\nls -l",
        "```action bash timeout_s=60\nls -l\n",
        "   ````action bash timeout_s=60\nls -l\n````",
        "```action bash timeout_s=60\r\nls -l\n```\r",
        "``` action bash timeout_s=60 \nls -l\n````",
    ],
)
def test_tolerated_spellings(text: str) -> None:
    assert one(text) == ("bash", {"command": "ls -l", "timeout_s": 60})


def test_a_body_may_hold_shorter_fences() -> None:
    text = "````action write_file path=README.md\nRun:\n```bash\nmake\n```\n````\nThen `done`."
    assert one(text) == ("write_file", {"path": "README.md", "content": "Run:\n```bash\nmake\n```\n"})
    assert scan(text).prose == "Then `done`."


def test_file_content_ends_with_a_newline_and_commands_do_not() -> None:
    assert one("```action write_file path=a\nx\n```")[1]["content"] == "x\n"
    assert one("```action write_file path=a\n```")[1]["content"] == ""
    assert one("```action bash\na\n\n```")[1]["command"] == "a\n"


def test_edits() -> None:
    text = "```action edit_file path=k.cpp\n<<<<<<< old\n  a\n\n=======\n  b\n>>>>>>> new\n```"
    assert one(text) == ("edit_file", {"path": "k.cpp", "old": "  a\n", "new": "  b"})
    text = "```action edit_file path=k.cpp\n<<<<<<< SEARCH\na\n=======\n>>>>>>> REPLACE\n```"
    assert one(text)[1] == {"path": "k.cpp", "old": "a", "new": ""}


def test_a_json_body_gives_several_arguments() -> None:
    assert one('```action edit_file\n{"path": "k", "old": "=======", "new": ""}\n```')[1] == {
        "path": "k",
        "old": "=======",
        "new": "",
    }
    assert one('```action write_file\n{"path": "k", "content": "no newline"}\n```')[1]["content"] == "no newline"


def test_a_json_file_is_no_argument_object() -> None:
    assert one('```action write_file path=a.json\n{"content": 1}\n```')[1]["content"] == '{"content": 1}\n'


def test_paths_with_spaces_and_other_letters() -> None:
    assert one('```action write_file path="kernels/größe 1.cpp"\n```')[1]["path"] == "kernels/größe 1.cpp"


def test_ordinary_blocks_are_not_actions() -> None:
    found = scan("```bash\nrm -rf /\n```\n~~~\n```cpp\nint x;\n```")
    assert (found.blocks, found.other) == ((), ("bash", "cpp"))


def test_an_action_quoted_in_a_longer_block_is_not_run() -> None:
    assert scan("````markdown\n```action bash\nrm -rf /\n```\n````").blocks == ()


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("```action bash ls -l\n```", r"cannot read 'ls -l'.*goes into the body", 1),
        ("\n```action\nls\n```", "names no action", 2),
        ("```action bash timeout_s=1 timeout_s=2\nls\n```", "gives timeout_s twice", 1),
        ("```action write_file\nint x;\n```", "has no path", 1),
        ("```action edit_file path=a\nnew text\n```", "<<<<<<< old", 1),
        ("```action edit_file path=a\n<<<<<<< old\na\n=======\nb\n=======\nc\n>>>>>>> new\n```", "2 lines =======", 1),
        ("```action edit_file path=a\n<<<<<<< old\na\n=======\nb\n```", "at the end", 1),
        ("```action compile\nplease\n```", "takes no body", 1),
        ("```action bash command=ls\npwd\n```", "header and body", 1),
        ("```action write_file path=a\nint x;\n```action compile\n```", "more backticks", 1),
        ("```action write_file path=a.md\n```cpp\nint x;\n```\n```", "more backticks", 1),
        ("```cpp\nint x;\n\n```action compile\nx", r"never closed.*line 4", 1),
    ],
)
def test_what_cannot_be_read_as_meant(text: str, says: str, line: int) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        read(text)
    assert caught.value.line == line
