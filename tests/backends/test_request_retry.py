"""Waiting: what Retry-After says, how long back-off is, and that nobody waits longer than they want to."""

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from backend_samples import TOOLS, user

from agent.backends.openai_api import OpenAIBackend
from agent.backends.protocols import AutoProtocolBackend
from agent.backends.retry import LONGEST_WAIT_S, ChatCancelled, backoff_s, call_cancellable, retry_after_s, wait
from agent.backends.scripted_steps import rate_limited, reply
from agent.config import BackendConfig

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("0", 0.0),
        (format_datetime(datetime.fromtimestamp(NOW, UTC) + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(datetime.fromtimestamp(NOW, UTC) - timedelta(seconds=90), usegmt=True), 0.0),
        ("soon", None),
        ("-3", None),
        ("inf", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, now=NOW) == seconds


def test_milliseconds_go_first() -> None:
    assert retry_after_s("7", milliseconds="250") == 0.25


def test_backoff_doubles_up_to_a_bound() -> None:
    for attempt in range(1, 40):
        full = min(LONGEST_WAIT_S, 2.0 ** (attempt - 1))
        assert full / 2 <= backoff_s(attempt) <= full


def test_a_date_in_retry_after_is_honoured_over_http(connect: Any) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    pair = connect(rate_limited(date), reply("ok"))
    assert pair.backend.chat([user()], ()).text == "ok"
    assert 25 < pair.waits[0] <= 30.25


def test_a_wait_of_minutes_ends_at_once(serve: Any) -> None:
    server = serve([rate_limited("200"), reply("never")])
    stop = threading.Event()
    backend = OpenAIBackend(BackendConfig(model="scripted", base_url=server.base_url), cancelled=stop.is_set)
    threading.Timer(0.3, stop.set).start()
    started = time.monotonic()
    with pytest.raises(ChatCancelled):
        backend.chat([user()], TOOLS)
    assert time.monotonic() - started < 100, "the server asked for 200 s"
    assert len(server.chats) == 1
    backend.close()


def test_a_reply_that_takes_minutes_is_left_behind(serve: Any) -> None:
    release = threading.Event()

    def slow(_: Any) -> Any:
        release.wait(60)
        return reply("late")

    server = serve(slow)
    backend = AutoProtocolBackend(OpenAIBackend(BackendConfig(model="scripted", base_url=server.base_url)))
    backend.cancelled = lambda: bool(server.chats)
    try:
        with pytest.raises(ChatCancelled):
            backend.chat([user()], TOOLS)
    finally:
        release.set()
    backend.cancelled = None
    assert backend.chat([user()], TOOLS).text == "late", "the backend is usable after a cancelled request"
    backend.close()


def test_errors_of_a_cancellable_call_arrive() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        call_cancellable(fail, cancelled=lambda: False)
    assert call_cancellable(lambda: 5, cancelled=lambda: False) == 5


def test_an_uncancelled_wait_lasts() -> None:
    started = time.monotonic()
    wait(0.25, cancelled=lambda: False)
    assert time.monotonic() - started >= 0.25
