"""What is known of a GGUF file before minutes go into loading it."""

from pathlib import Path

import pytest
from tiny_gguf import write_gguf

from agent.backends.gguf import read_gguf
from agent.errors import ConfigError


def test_a_whole_file_tells_its_architecture_and_window(tmp_path: Path) -> None:
    found = read_gguf(write_gguf(tmp_path / "m.gguf", architecture="qwen2", context=2048))
    assert (found.architecture, found.context_tokens) == ("qwen2", 2048)


def test_every_shorter_file_is_truncated(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (*range(5, len(whole), 7), len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(ConfigError, match="is truncated") as caught:
            read_gguf(cut)
        assert caught.value.hint and "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"GGML", b"<html>not found</html>", b"PK\x03\x04"])
def test_other_files_are_named_as_such(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="is no GGUF file"):
        read_gguf(path)


def test_a_header_that_promises_too_much_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 64)
    with pytest.raises(ConfigError, match="truncated"):
        read_gguf(path)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(ConfigError, match="cannot read"):
            read_gguf(path)
