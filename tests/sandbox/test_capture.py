"""Ring buffers and logs, by example and by property."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agent.sandbox.capture import Capture, CommandOutput


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 50), st.integers(0, 50))
def test_head_gap_and_tail_add_up(chunks: list[bytes], head: int, tail: int) -> None:
    capture = Capture(head_bytes=head, tail_bytes=tail)
    for chunk in chunks:
        capture.add(chunk)
    whole = b"".join(chunks)
    output = capture.output()
    assert output.total == len(whole)
    assert whole.startswith(output.head) and whole.endswith(output.tail)
    if len(whole) <= head + tail:
        assert (output.omitted, output.head + output.tail) == (0, whole)
    else:
        assert output.omitted >= len(whole) - head - tail
        assert len(output.head) > head - 4 and len(output.tail) > tail - 4


@given(st.text(min_size=1, max_size=300), st.integers(4, 60), st.integers(4, 60), st.integers(1, 7))
def test_characters_are_never_cut_in_two(text: str, head: int, tail: int, step: int) -> None:
    data = text.encode("utf-8", "replace")
    capture = Capture(head_bytes=head, tail_bytes=tail)
    for start in range(0, len(data), step):
        capture.add(data[start : start + step])
    output = capture.output()
    if output.omitted:
        output.head.decode("utf-8")
        output.tail.decode("utf-8")
        assert f"{output.omitted} bytes omitted" in output.text()
    else:
        assert output.text() == data.decode()


def test_the_buffer_stays_small() -> None:
    capture = Capture(head_bytes=1000, tail_bytes=1000)
    for _ in range(10_000):
        capture.add(b"x" * 1000)
        assert len(capture._tail) <= 3000
    assert capture.output().total == 10_000_000


def test_both_streams_share_a_log(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "log.txt"
    with CommandOutput(log, log_bytes=10) as output:
        output.add("stdout", b"12345")
        output.add("stderr", b"67890abc")
    assert log.read_bytes() == b"1234567890\n[the log ends here: 3 more bytes were not kept]\n"
    assert (output.stdout.output().head, output.stderr.output().head) == (b"12345", b"67890abc")
