"""What is sent is always valid, whatever the history: paired results, argument objects, no lone surrogates."""

import json

from backend_samples import assistant, result, user
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.base import Message, ToolCall
from agent.backends.sanitize import (
    NOT_EXECUTED,
    argument_object,
    clean_json,
    clean_text,
    parse_object,
    sanitize_history,
    unique_ids,
)
from agent.backends.scripted_server import history_problems
from agent.backends.wire import wire_message

ANY_TEXT = st.text(st.characters(codec=None), max_size=30)  # lone surrogates included
IDS = st.sampled_from(["", "a", "b", "call_0", "\ud83d"])
CALLS = st.builds(
    ToolCall, id=IDS, name=ANY_TEXT, arguments=ANY_TEXT | st.just('{"a": 1}') | st.just('{"a": "\\ud83d"}')
)
MESSAGES = st.one_of(
    st.builds(Message, role=st.just("user"), content=ANY_TEXT.map(lambda t: t or "x")),
    st.builds(Message, role=st.just("tool"), content=ANY_TEXT.map(lambda t: t or "x"), tool_call_id=IDS),
    st.builds(Message, role=st.just("assistant"), content=ANY_TEXT, tool_calls=st.lists(CALLS, max_size=3).map(tuple)),
)


@given(st.lists(MESSAGES, max_size=8))
def test_every_history_becomes_one_that_a_strict_server_takes(messages: list[Message]) -> None:
    wire = [wire_message(message) for message in sanitize_history(messages)]
    assert history_problems(wire) == []
    assert json.dumps(wire, ensure_ascii=False).encode("utf-8")


@given(st.lists(MESSAGES, max_size=8))
def test_sanitising_twice_changes_nothing(messages: list[Message]) -> None:
    once = sanitize_history(messages)
    assert sanitize_history(once) == once


@given(st.lists(MESSAGES, max_size=8))
def test_no_words_are_lost(messages: list[Message]) -> None:
    sent = "\n".join(message.content for message in sanitize_history(messages))
    assert all(clean_text(message.content) in sent for message in messages)


def test_a_valid_history_is_sent_as_it_is() -> None:
    history = [
        Message(role="system", content="s"),
        user(),
        assistant("hm", ("a", "bash", '{ "command":"ls" }'), ("b", "compile", "{}")),
        result("a"),
        result("b"),
        user("more"),
    ]
    assert sanitize_history(history) == history


def test_results_lost_in_a_crash_are_supplied() -> None:
    history = [assistant("", ("a", "bash", "{}"), ("b", "bash", "{}")), result("b", "out"), user("go on")]
    assert [(m.tool_call_id, m.content) for m in sanitize_history(history)[1:]] == [
        ("a", NOT_EXECUTED),
        ("b", "out"),
        (None, "go on"),
    ]


def test_a_second_result_for_a_call_is_kept_as_a_users_word() -> None:
    history = [assistant("", ("a", "bash", "{}")), result("a", "one"), result("a", "two")]
    assert [(m.role, m.content) for m in sanitize_history(history)[1:]] == [
        ("tool", "one"),
        ("user", "[result of an unknown call]\ntwo"),
    ]


def test_ids_reused_in_later_turns_stay() -> None:
    turn = [assistant("", ("call_0", "bash", "{}")), result("call_0")]
    assert sanitize_history(turn * 2) == turn * 2


def test_arguments_that_are_objects_keep_their_bytes() -> None:
    assert argument_object('{"b":1,  "a": "ü"}') == '{"b":1,  "a": "ü"}'


def test_arguments_with_escaped_surrogates_are_cleaned() -> None:
    assert json.loads(argument_object('{"command": "\\ud83d"}')) == {"command": "�"}
    assert json.loads(argument_object('{"command": "\\ud83d\\ude00"}')) == {"command": "😀"}


def test_deeply_nested_arguments_do_not_crash() -> None:
    assert parse_object('{"a":' * 100_000) is None


def test_surrogate_pairs_are_joined() -> None:
    assert clean_text("\ud83d\ude00 \ude00\ud83d") == "😀 ��"
    assert clean_json({"\ud83d": ["\ud83d", 1, None]}) == {"�": ["�", 1, None]}


@given(st.lists(st.sampled_from(["", "a", "b", "call_0", "a_1_2"]), max_size=8))
def test_ids_become_unique_and_good_ones_stay(ids: list[str]) -> None:
    made = unique_ids(ids)
    assert len(set(made)) == len(ids) and "" not in made
    assert [new for old, new in zip(ids, made, strict=True) if old and ids.count(old) == 1] == [
        id for id in ids if id and ids.count(id) == 1
    ]
