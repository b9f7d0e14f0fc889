"""What every kind of sandbox promises: commands, output, time limits, files."""

import resource
import subprocess
import threading
import time
from pathlib import Path

import pytest
from sandbox_kinds import KINDS, SMALL, Opener, said, shell

from agent.errors import SandboxError
from agent.sandbox.base import Sandbox

MB = 1 << 20


def test_runs_in_the_workspace_and_keeps_streams_apart(sandbox: Sandbox) -> None:
    result = shell(sandbox, "echo out; echo err >&2; exit 3")
    assert (result.status, result.exit_code, result.ok) == ("exited", 3, False)
    assert (result.stdout.text(), result.stderr.text()) == ("out\n", "err\n")
    sandbox.write("here.txt", b"x")
    assert "here.txt" in said(shell(sandbox, "ls"))


def test_argv_is_run_as_it_is_without_a_shell(sandbox: Sandbox) -> None:
    result = sandbox.exec(["printf", "%s|", "a b", "$HOME", "*", "", "it's"], timeout_s=10)
    assert said(result) == "a b|$HOME|*||it's|"


def test_heredocs_and_awk_reach_the_shell_byte_for_byte(sandbox: Sandbox) -> None:
    source = "__global__ void k() { a[i] = '\\n$x' + \"`\"; }"
    command = f"cat > k.cu <<'EOF'\n{source}\nEOF\nawk '{{ print $2 \"\\047\" }}' <<< 'b ü'\ncat k.cu"
    assert said(shell(sandbox, command)) == f"ü'\n{source}"


def test_stdin_is_given_whole_and_nothing_waits_for_more(sandbox: Sandbox) -> None:
    assert said(shell(sandbox, "wc -c", stdin=b"x" * (3 * MB))) == str(3 * MB)
    assert said(shell(sandbox, "wc -c")) == "0"


def test_a_command_that_ignores_its_stdin_ends(sandbox: Sandbox) -> None:
    assert said(shell(sandbox, "exec 0<&-; echo done", stdin=b"x" * (3 * MB))) == "done"


def test_stdout_is_heard_while_the_command_goes_on(sandbox: Sandbox) -> None:
    heard: list[tuple[float, bytes]] = []
    argv = ["sh", "-c", "echo noise >&2; echo first; sleep 2; echo last"]
    result = sandbox.exec(argv, timeout_s=20, heard=lambda data: heard.append((time.monotonic(), data)))
    assert time.monotonic() - heard[0][0] > 1.0
    assert b"".join(data for _, data in heard) == b"first\nlast\n" == result.stdout.head


def test_environment_is_a_fixed_list(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    names = {line.partition("=")[0] for line in said(sandbox.exec(["env"], timeout_s=10)).splitlines()}
    assert {"HOME", "TMPDIR", "PATH", "MAX_JOBS"} <= names
    assert not {name for name in names if "KEY" in name or "PROXY" in name.upper() or name.startswith("PIP_CERT")}
    assert said(sandbox.exec(["printenv", "EXTRA"], timeout_s=10, env={"EXTRA": "1"})) == "1"


@pytest.mark.parametrize("argv", [["no-such-program"], ["/"], []])
def test_what_cannot_be_started_is_a_result(sandbox: Sandbox, argv: list[str]) -> None:
    result = sandbox.exec(argv, timeout_s=10)
    assert result.status == "exited" and result.exit_code in (126, 127) and result.stderr.text()


def test_a_missing_folder_is_the_commands_failure(sandbox: Sandbox) -> None:
    result = sandbox.exec(["true"], timeout_s=10, cwd="/no/such/folder")
    assert not result.ok and "/no/such/folder" in result.stderr.text()
    assert sandbox.exec(["true"], timeout_s=10).ok


def test_nul_bytes_and_endless_arguments_are_results(sandbox: Sandbox) -> None:
    assert sandbox.exec(["echo", "a\0b"], timeout_s=10).exit_code == 126
    assert sandbox.exec(["echo", "x" * (4 * MB)], timeout_s=10).exit_code == 126
    assert sandbox.exec(["true"], timeout_s=10).ok


def test_lone_surrogates_and_undecodable_bytes_go_through(sandbox: Sandbox) -> None:
    assert sandbox.exec(["printf", "%s", "\ud83d"], timeout_s=10).stdout.head == b"\xed\xa0\xbd"
    assert sandbox.exec(["printf", "%s", "\udcff"], timeout_s=10).stdout.head == b"\xff"
    assert shell(sandbox, r"printf '\xff\xfe\x00x'").stdout.text() == "\ufffd\ufffd\0x"


def test_exit_by_signal_is_told_like_a_shell_does(sandbox: Sandbox) -> None:
    result = sandbox.exec(["bash", "-c", "kill -SEGV $$"], timeout_s=10)
    assert (result.status, result.exit_code) == ("exited", 139)


def test_exit_codes_of_timeouts_are_not_mistaken(sandbox: Sandbox) -> None:
    for code in (124, 137, 143):
        result = shell(sandbox, f"exit {code}", timeout_s=30)
        assert (result.status, result.exit_code) == ("exited", code)


def test_timeout_keeps_partial_output_and_leaves_nothing_running(sandbox: Sandbox) -> None:
    command = "echo partial; echo also >&2; sleep 4321 & setsid sleep 4322 & sleep 4323"
    result = shell(sandbox, command, timeout_s=1)
    assert (result.status, result.exit_code) == ("timeout", 124)
    assert (result.stdout.text(), result.stderr.text()) == ("partial\n", "also\n")
    # The brackets keep pgrep from finding its own command line.
    assert shell(sandbox, "pgrep -f 'sleep 432[123]'").exit_code == 1
    assert sandbox.exec(["true"], timeout_s=10).ok


def test_timeout_ends_a_command_that_ignores_signals(sandbox: Sandbox) -> None:
    result = shell(sandbox, "trap '' TERM INT HUP; echo on; while :; do sleep 0.1; done", timeout_s=0.5)
    assert (result.status, result.stdout.text()) == ("timeout", "on\n")


def test_background_child_that_holds_stdout_does_not_hold_the_call(sandbox: Sandbox) -> None:
    began = time.monotonic()
    assert said(shell(sandbox, "sleep 4324 & echo back", timeout_s=60)) == "back"
    assert time.monotonic() - began < 30
    assert shell(sandbox, "pgrep -f 'sleep 432[4]'").exit_code == 1


def test_a_daemon_does_not_outlive_its_command(sandbox: Sandbox) -> None:
    assert said(shell(sandbox, "setsid nohup sleep 4325 >/dev/null 2>&1 & echo back")) == "back"
    assert shell(sandbox, "pgrep -f 'sleep 432[5]'").exit_code == 1


def test_out_of_memory_is_told_apart(sandbox: Sandbox) -> None:
    if "not limited" in sandbox.describe() or "unlimited" in sandbox.describe():
        pytest.skip("no memory limit can be set on this host")
    program = f"x = bytearray({3 * SMALL.memory_bytes})"
    result = sandbox.exec(["python3", "-c", program], timeout_s=60)
    assert (result.status, result.exit_code) == ("oom", 137)
    assert sandbox.exec(["true"], timeout_s=10).status == "exited"
    killed = shell(sandbox, "kill -KILL $$")
    assert (killed.status, killed.exit_code) == ("exited", 137)


def test_a_gigabyte_of_output_leaves_the_hosts_memory_flat(sandbox: Sandbox, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = shell(sandbox, "echo first; yes | head -c 1G; echo last", timeout_s=300)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mb < 32
    assert result.stdout.total == (1 << 30) + len("first\nlast\n")
    assert result.stdout.head.startswith(b"first\ny\n") and result.stdout.tail.endswith(b"y\nlast\n")
    assert f"{result.stdout.omitted} bytes omitted" in result.stdout.text()


def test_the_log_is_complete_and_the_memory_copy_is_cut_between_characters(sandbox: Sandbox, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "command.log"
    result = shell(sandbox, "echo problem >&2; printf 'x'; yes 'ü€😀' | head -c 3000000", log=log)
    assert result.log == log
    written = log.read_bytes()
    assert len(written) == 3000001 + len("problem\n") and b"problem\n" in written
    assert result.stdout.omitted > 0 and "\ufffd" not in result.stdout.text().rstrip("\ufffd")
    assert result.stdout.total == 3000001


def test_the_log_says_where_it_ends(opener: Opener, tmp_path: Path) -> None:
    from dataclasses import replace

    sandbox = opener("none", limits=replace(SMALL, log_bytes=1000))
    log = tmp_path / "command.log"
    shell(sandbox, "yes | head -c 5000", log=log)
    head, note = log.read_bytes()[:1000], log.read_text()[1000:]
    assert head == b"y\n" * 500 and "4000 more bytes" in note


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_cannot_be_written_is_the_hosts_trouble(kind: str, opener: Opener) -> None:
    sandbox = opener(kind)
    with pytest.raises(SandboxError, match="cannot write the log"):
        shell(sandbox, "yes | head -c 1000000", log=Path("/dev/full"))
    assert sandbox.exec(["echo", "next"], timeout_s=10).stdout.text() == "next\n"


def test_tools_are_readable_and_run(sandbox: Sandbox) -> None:
    result = sandbox.exec([sandbox.python, "-I", "/opt/agent-tools/tool.py"], timeout_s=20)
    assert said(result) == "from the tool"
    assert sandbox.read("/opt/agent-tools/tool.py", limit=5) == b"print"


def test_tmp_and_home_persist_between_commands(sandbox: Sandbox) -> None:
    said(shell(sandbox, 'echo 1 > /tmp/kept; echo 2 > ~/kept; test $TMPDIR = "$(dirname ~)"'))
    assert said(shell(sandbox, "cat /tmp/kept ~/kept")) == "1\n2"
    assert sandbox.read("/tmp/kept", limit=100) == b"1\n"


def test_files_written_by_the_host_are_seen_inside_also_in_tmp(sandbox: Sandbox) -> None:
    for path in ("kernels/deep/a.cpp", "/workspace/b.cpp", "/tmp/x/c.cpp"):
        sandbox.write(path, b"int main() {}\n")
        assert sandbox.read(path, limit=3) == b"int"
        assert said(shell(sandbox, f"cat {path}")) == "int main() {}"
    sandbox.write("run.sh", b"#!/bin/sh\necho ran\n", mode=0o755)
    assert said(shell(sandbox, "./run.sh && echo more >> run.sh && rm -r kernels")) == "ran"


def test_a_file_is_replaced_whole(sandbox: Sandbox) -> None:
    sandbox.write("whole.txt", b"a" * 1000)
    sandbox.write("whole.txt", b"b")
    assert sandbox.read("whole.txt", limit=100) == b"b"
    assert said(shell(sandbox, "ls -A | grep -c whole")) == "1"


def test_large_files_in_tmp_are_read_whole(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 8192
    sandbox.write("/tmp/large", data)
    assert sandbox.read("/tmp/large", limit=1 << 30) == data
    assert sandbox.read("/tmp/large", limit=1_000_000) == data[:1_000_000]


def test_typed_errors_for_paths(sandbox: Sandbox) -> None:
    said(shell(sandbox, "mkdir -p folder /tmp/folder; touch file; mkfifo -m 666 pipe /tmp/pipe; true"))
    for path, error in (
        ("missing", FileNotFoundError),
        ("/tmp/missing", FileNotFoundError),
        ("file/below", FileNotFoundError),
        ("a\0b", FileNotFoundError),
        ("folder", IsADirectoryError),
        ("/tmp/folder", IsADirectoryError),
        (".", IsADirectoryError),
        ("pipe", PermissionError),
        ("/tmp/pipe", PermissionError),
        ("../outside", PermissionError),
        ("/workspace/../etc/passwd", PermissionError),
    ):
        with pytest.raises(error):
            sandbox.read(path, limit=10)
    for path in ("folder", "/tmp/folder"):
        with pytest.raises(IsADirectoryError):
            sandbox.write(path, b"x")
    said(shell(sandbox, "rm -r folder file pipe /tmp/pipe /tmp/folder"))


@pytest.mark.parametrize("kind", KINDS)
def test_close_from_another_thread_ends_the_command(kind: str, opener: Opener) -> None:
    sandbox = opener(kind)
    timer = threading.Timer(0.7, sandbox.close)
    timer.start()
    began = time.monotonic()
    with pytest.raises(SandboxError, match="closed"):
        shell(sandbox, "sleep 4326 & sleep 4327", timeout_s=120)
    assert time.monotonic() - began < 60
    timer.join()
    with pytest.raises(SandboxError, match="closed"):
        shell(sandbox, "true")
    assert subprocess.run(["pgrep", "-f", "^sleep 432[67]"], capture_output=True).returncode == 1


def test_second_close_is_harmless_and_use_after_it_is_an_error(opener: Opener) -> None:
    for kind in ("none", "bubblewrap", "docker"):
        try:
            sandbox = opener(kind)
        except pytest.skip.Exception:
            continue
        sandbox.close()
        sandbox.close()
        for use in (
            lambda box=sandbox: box.exec(["true"], timeout_s=5),
            lambda box=sandbox: box.read("x", limit=1),
            lambda box=sandbox: box.write("x", b""),
        ):
            with pytest.raises(SandboxError, match="closed"):
                use()
