"""Bubblewrap sandboxes: which program, which folders, ordinary users, and set-ups that fail."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sandbox_kinds import SMALL, Opener, require, said, shell

from agent.errors import SandboxError
from agent.sandbox import bubblewrap
from agent.sandbox.base import Mount, SandboxSpec
from agent.sandbox.interpreter import find_interpreter

pytestmark = pytest.mark.bubblewrap


def test_each_bwrap_that_is_here_works(tmp_path: Path) -> None:
    require("bubblewrap")
    programs = [program for program in bubblewrap._candidates() if bubblewrap._version(program) >= bubblewrap.OLDEST]
    assert programs
    for program in programs:
        with closing(bubblewrap.open_bubblewrap(SandboxSpec(workspace=tmp_path, limits=SMALL), bwrap=program)) as box:
            assert said(shell(box, "id -un")) == "agent"
            assert str(program) in box.describe()


def test_without_bwrap_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bubblewrap, "find_spec", lambda name: None)
    with pytest.raises(SandboxError) as caught:
        bubblewrap.open_bubblewrap(SandboxSpec(workspace=tmp_path))
    assert "apt-get install bubblewrap" in caught.value.hint


def test_an_old_bwrap_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.4.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(bubblewrap, "find_spec", lambda name: None)
    with pytest.raises(SandboxError, match=r"too old: version 0\.4\.1"):
        bubblewrap.find_bwrap()


def test_a_bwrap_that_is_not_permitted_is_a_dead_sandbox_not_a_failing_command(tmp_path: Path) -> None:
    require("bubblewrap")
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxError, match="Permission denied") as caught:
        bubblewrap.open_bubblewrap(SandboxSpec(workspace=tmp_path), bwrap=broken)
    assert "exit code 1" in caught.value.post_mortem and caught.value.hint
    assert not list(Path("/sys/fs/cgroup").glob(f"**/cuda-agent-{os.getpid()}-*"))


def test_missing_folders_are_errors(opener: Opener, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="does not exist"):
        opener("bubblewrap", mounts=(Mount(tmp_path / "nothing", "/opt/x"),))
    sandbox = opener("bubblewrap", workspace=tmp_path / "soon gone")
    shutil.rmtree(tmp_path / "soon gone")
    with pytest.raises(SandboxError, match="removed"):
        shell(sandbox, "true")


def test_the_killed_bwrap_of_a_command_is_a_dead_sandbox(opener: Opener) -> None:
    sandbox = opener("bubblewrap")
    marker = "sleep 54.321"
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.7; pkill -KILL -f 'bwrap.*{marker}'"])
    with pytest.raises(SandboxError, match="killed during a command"):
        shell(sandbox, marker)
    killer.wait()
    assert subprocess.run(["pgrep", "-f", f"^{marker}$"], capture_output=True).returncode == 1


def test_only_the_interpreters_own_folders_are_shown(opener: Opener) -> None:
    sandbox = opener("bubblewrap")
    interpreter = find_interpreter("")
    assert interpreter.path == Path(sys.executable)
    seen = said(
        sandbox.exec([sandbox.python, "-I", "-c", "import sys; print(sys.prefix, sys.base_prefix)"], timeout_s=20)
    )
    assert seen == f"{sys.prefix} {sys.base_prefix}"
    for folder in (Path.home(), Path(__file__).parents[2]):
        inside = set(said(shell(sandbox, f"ls -A '{folder}' 2>/dev/null || true")).split())
        shown = {part.relative_to(folder).parts[0] for part in interpreter.folders if part.is_relative_to(folder)}
        assert inside <= shown, folder


def test_an_interpreter_that_is_none_is_refused(tmp_path: Path) -> None:
    for python in (str(tmp_path / "missing"), "/bin/true"):
        with pytest.raises(SandboxError, match="does not run as a Python interpreter"):
            find_interpreter(python)


def test_a_workspace_that_another_kind_had_given_away_is_writable(opener: Opener, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    (workspace / "kernels").mkdir(parents=True)
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    for path in (workspace, workspace / "kernels"):
        os.chown(path, 10001, 10001)
    assert said(shell(opener("bubblewrap", workspace=workspace), "echo x > kernels/a; cat kernels/a")) == "x"


def test_a_full_disk_stops_the_start_with_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("bubblewrap")
    (tmp_path / "workspace").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "workspace" / "missing"))
    with pytest.raises(SandboxError, match="cannot make a folder"):
        bubblewrap.open_bubblewrap(SandboxSpec(workspace=tmp_path / "workspace"))


def test_nothing_of_ours_is_left_behind(opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sandbox = opener("bubblewrap", workspace=tmp_path / "w")
    assert list(tmp_path.glob("cuda-agent-sandbox-*"))
    shell(sandbox, "mkdir -p /tmp/closed/in; touch /tmp/closed/in/x; chmod 0 /tmp/closed/in /tmp/closed")
    sandbox.close()
    assert not list(tmp_path.glob("cuda-agent-sandbox-*"))
    assert not list(Path("/sys/fs/cgroup").glob(f"**/cuda-agent-{os.getpid()}-*"))


def test_an_ordinary_user_needs_no_rights(tmp_path: Path) -> None:
    """As a user without rights, with the system's interpreter: no group may be created, the rest holds."""
    require("bubblewrap")
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("another user can only be tried as root")
    source = tmp_path / "source"
    shutil.copytree(Path(__file__).parents[2] / "agent", source / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 12345, 12345)
    for folder in (source, *tmp_path.parents[:2], tmp_path):
        folder.chmod(0o755)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from agent.sandbox.base import Limits, SandboxSpec\n"
        "from agent.sandbox.bubblewrap import open_bubblewrap\n"
        "box = open_bubblewrap(SandboxSpec(workspace=Path(sys.argv[2]), limits=Limits(pids=64)))\n"
        "def out(command):\n"
        "    result = box.exec(['bash', '-c', command], timeout_s=20)\n"
        "    return (result.stdout.text() + result.stderr.text()).strip()\n"
        "print(out('id -u; echo x > f; cat f; ulimit -u; python3 -c \"print(1)\"').split())\n"
        "print('unlimited' in box.describe() or 'not limited' in box.describe())\n"
        "box.write('a/b', b'host'); print(out('cat a/b')); box.close()\n"
    )
    run = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "env", "-i", f"HOME={home}", f"TMPDIR={home}"]
    argv = [*run, "PATH=/usr/bin:/bin", "/usr/bin/python3", "-c", program, str(source), str(home)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["['10001', 'x', '64', '1']", "True", "host"], done.stderr


def test_many_bytes_on_stdin_and_a_command_that_reads_none_of_them(opener: Opener) -> None:
    sandbox = opener("bubblewrap")
    assert sandbox.exec(["sleep", "0.1"], timeout_s=10, stdin=b"x" * (8 << 20)).ok
