"""Token rows: merged by prefix from any sequence of calls, with masks, logprobs, rewards and labels that add up."""

import itertools
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.export.episodes import Tokens
from agent.export.tokens import TokensInconsistent, labels_of, merge, rewards_of

IDS = st.lists(st.integers(0, 1 << 40), max_size=6)


def tokens(prompt: Sequence[int], completion: Sequence[int], logprobs: Sequence[float] | None = None) -> Tokens:
    """Logprobs are -1, -2, … where none are given."""
    values = [-1.0 - at for at in range(len(completion))] if logprobs is None else logprobs
    return Tokens(array("q", prompt), array("q", completion), array("d", values))


@st.composite
def episodes(draw: st.DrawFn) -> list[Tokens]:
    """Calls of which some go on with what came before, some drop or change it, as compaction and templates do."""
    calls: list[Tokens] = []
    seen = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
    for _ in range(draw(st.integers(1, 6))):
        completion = draw(IDS)
        calls.append(tokens(seen, completion))
        seen = seen + completion
        match draw(st.sampled_from(("go on", "go on", "drop", "change"))):
            case "go on":
                seen = seen + draw(IDS)
            case "drop":
                seen = seen[: draw(st.integers(0, len(seen)))]
            case "change":
                seen = [*seen[:-1], sum(seen[-1:]) + 1, *draw(IDS)]
    return calls


@given(episodes())
def test_every_completion_token_is_trained_on_exactly_once(calls: list[Tokens]) -> None:
    rows = merge(calls)
    written = [id for row in rows for id, mask in zip(row.response, row.mask, strict=True) if mask]
    assert written == [id for call in calls for id in call.completion]
    assert sum(sum(row.mask) for row in rows) == sum(len(call.completion) for call in calls)


@given(episodes())
def test_lengths_are_equal_and_logprobs_are_zero_where_the_model_did_not_write(calls: list[Tokens]) -> None:
    for row in merge(calls):
        assert row.logprobs is not None
        assert len(row.response) == len(row.mask) == len(row.logprobs)
        assert set(row.mask) <= {0, 1}
        assert all(value == 0.0 for value, mask in zip(row.logprobs, row.mask, strict=True) if not mask)
    given_ = [value for call in calls for value in call.logprobs or ()]
    kept = [v for row in merge(calls) for v, m in zip(row.logprobs or (), row.mask, strict=True) if m]
    assert kept == given_


@given(episodes())
def test_each_reply_stands_behind_exactly_the_prompt_that_the_server_saw(calls: list[Tokens]) -> None:
    for row in merge(calls):
        everything = row.prompt.tolist() + row.response.tolist()
        for span in row.spans:
            edge = len(row.prompt) + span.begin
            assert everything[:edge] == calls[span.index].prompt.tolist()
            assert everything[edge : len(row.prompt) + span.end] == calls[span.index].completion.tolist()


@given(episodes())
def test_a_new_row_begins_exactly_where_the_prefix_breaks(calls: list[Tokens]) -> None:
    breaks = sum(
        later.prompt.tolist()[: len(earlier.prompt) + len(earlier.completion)]
        != earlier.prompt.tolist() + earlier.completion.tolist()
        for earlier, later in itertools.pairwise(calls)
    )
    assert len(merge(calls)) == breaks + 1


@given(episodes(), st.sampled_from([-1.0, 1.0, 2.0, 3.0]))
def test_the_reward_stands_once_at_the_last_token_that_the_model_wrote(calls: list[Tokens], reward: float) -> None:
    rows = merge(calls)
    rewards = rewards_of(rows, reward)
    places = [(r, at) for r, values in enumerate(rewards) for at, value in enumerate(values) if value]
    written = [(r, at) for r, row in enumerate(rows) for at, mask in enumerate(row.mask) if mask]
    assert [len(values) for values in rewards] == [len(row.response) for row in rows]
    assert places == written[-1:]
    assert sum(map(sum, rewards)) == (reward if written else 0.0)


@given(episodes(), st.data())
def test_labels_are_the_ids_of_trained_replies_and_nothing_else(calls: list[Tokens], data: st.DataObject) -> None:
    trained = data.draw(st.lists(st.booleans(), min_size=len(calls), max_size=len(calls)))
    for row in merge(calls):
        ids, labels = labels_of(row, trained=trained)
        assert ids == row.prompt.tolist() + row.response.tolist()
        assert len(labels) == len(ids)
        expected = [-100] * len(ids)
        for span in row.spans:
            if trained[span.index]:
                at = slice(len(row.prompt) + span.begin, len(row.prompt) + span.end)
                expected[at] = ids[at]
        assert labels == expected


def test_a_plain_episode_is_one_row() -> None:
    calls = [tokens([1, 2], [3, 4]), tokens([1, 2, 3, 4, 9, 9], [5])]
    (row,) = merge(calls)
    assert (row.prompt.tolist(), row.response.tolist()) == ([1, 2], [3, 4, 9, 9, 5])
    assert (row.mask, row.logprobs) == ([1, 1, 0, 0, 1], [-1.0, -2.0, 0.0, 0.0, -1.0])


def test_a_reply_without_logprobs_leaves_its_row_without_any() -> None:
    bare = Tokens(array("q", [1, 2, 3, 4]), array("q", [5]), None)
    (row,) = merge([tokens([1, 2], [3]), bare])
    assert row.logprobs is None
    assert row.mask == [1, 0, 1]


@pytest.mark.parametrize("logprobs", [[-1.0], [-1.0, -2.0, -3.0], [float("nan"), -1.0], [float("-inf"), -1.0]])
def test_what_does_not_fit_together_is_said(logprobs: list[float]) -> None:
    with pytest.raises(TokensInconsistent):
        merge([tokens([1], [2, 3], logprobs)])
