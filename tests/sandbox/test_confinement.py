"""What docker and bubblewrap keep in, and what the judge needs to work inside them."""

import json
import os
import platform
import socket
import threading
from pathlib import Path

import pytest
from sandbox_kinds import CONFINED, Opener, said, shell

from agent.sandbox.base import Mount, Sandbox

JUDGE_NEEDS = r"""
import ctypes, json, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
found = {}
found["shm"] = os.statvfs("/dev/shm").f_bavail > 0 and open("/dev/shm/x", "wb").write(b"1") == 1
buffer = ctypes.create_string_buffer(b"secret outputs")
child = os.fork()
if child == 0:
    while True:
        time.sleep(0.001)
os.kill(child, signal.SIGSTOP)
os.waitpid(child, os.WUNTRACED)
found["state"] = open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0]
with open(f"/proc/{child}/mem", "rb", 0) as memory:
    found["mem"] = os.pread(memory.fileno(), 14, ctypes.addressof(buffer)).decode()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
found["pids"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())[-1] < 1000
shielded = os.fork()
if shielded == 0:
    libc.prctl(4, 0, 0, 0, 0)
    open("/dev/shm/ready", "w").close()
    time.sleep(60)
while not os.path.exists("/dev/shm/ready"):
    time.sleep(0.001)
try:
    open(f"/proc/{shielded}/mem", "rb")
    found["dumpable"] = "open"
except PermissionError:
    found["dumpable"] = "closed"
filtered = os.fork()
if filtered == 0:
    # BPF: EPERM for getppid (110), everything else allowed.
    code = struct.pack("HBBI", 0x20, 0, 0, 0) + struct.pack("HBBI", 0x15, 0, 1, 110)
    code += struct.pack("HBBI", 0x06, 0, 0, 0x00050001) + struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
    program = ctypes.create_string_buffer(code, len(code))
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(program)))
    libc.prctl(38, 1, 0, 0, 0)
    done = libc.prctl(22, 2, fprog, 0, 0)
    os._exit(7 if done == 0 and libc.syscall(110) == -1 else 1)
found["seccomp"] = os.waitstatus_to_exitcode(os.waitpid(filtered, 0)[1])
print(json.dumps(found))
"""


def test_the_judge_finds_what_it_needs(confined: Sandbox) -> None:
    found = json.loads(said(confined.exec(["python3", "-I", "-c", JUDGE_NEEDS], timeout_s=60)))
    assert found == {
        "shm": True,
        "state": "T",
        "mem": "secret outputs",
        "pids": True,
        "dumpable": "closed",
        "seccomp": 7,
    }


def test_no_network_not_even_the_hosts_loopback(confined: Sandbox) -> None:
    program = (
        "import socket, sys\n"
        "print(sorted(name for _, name in socket.if_nameindex() if name != 'lo'))\n"
        "for address in (('127.0.0.1', int(sys.argv[1])), ('192.0.2.1', 80)):\n"
        "    try: socket.create_connection(address, timeout=3); print('connected')\n"
        "    except OSError: print('refused')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        accepted = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
        accepted.start()
        assert said(confined.exec(["python3", "-c", program, port], timeout_s=30)) == "[]\nrefused\nrefused"
        assert accepted.is_alive()
        with socket.create_connection(server.getsockname()):
            accepted.join(5)


def test_abstract_sockets_of_the_host_are_out_of_reach(confined: Sandbox) -> None:
    name = f"agent-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        program = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        result = confined.exec(["python3", "-c", program], timeout_s=30)
        assert "Connection refused" in result.stderr.text()


def test_a_user_without_rights(confined: Sandbox) -> None:
    assert said(shell(confined, "id -u")) != "0"
    status = said(shell(confined, "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status"))
    values = dict(line.split(":\t") for line in status.splitlines())
    assert values.pop("NoNewPrivs") == "1"
    assert set(values.values()) == {"0" * 16}


def test_root_and_tools_are_read_only(confined: Sandbox) -> None:
    for path in ("/x", "/usr/x", "/etc/x", "/opt/agent-tools/x", "/opt/x", "/dev/x", "/run/x", "/var/x", "/home/x"):
        result = shell(confined, f"touch {path} || mkdir -p $(dirname {path})/y && exit 1")
        assert not result.ok, path
    assert not shell(confined, "echo x >> /opt/agent-tools/tool.py").ok
    with pytest.raises(OSError):
        confined.write("/opt/agent-tools/tool.py", b"x")
    assert said(shell(confined, "cat /opt/agent-tools/tool.py")) == "print('from the tool')"


def test_tmp_is_executable(confined: Sandbox) -> None:
    source = 'extern "C" int answer() { return 42; }'
    build = f"cd /tmp && echo '{source}' > a.cpp && g++ -shared -fPIC -o liba.so a.cpp"
    assert shell(confined, build, timeout_s=120).ok
    load = "import ctypes; print(ctypes.CDLL('/tmp/liba.so').answer())"
    assert said(confined.exec(["python3", "-c", load], timeout_s=30)) == "42"


def test_kernel_knobs_are_closed(confined: Sandbox) -> None:
    # Looked at, not written: a hole would change this machine.
    find = "find /proc /sys -path '/proc/[0-9]*' -prune -o ! -type l -writable -print 2>/dev/null; test -d /proc/sys"
    writable = set(said(shell(confined, find)).splitlines())
    # The engine covers keys and timer_list with /dev/null; pressure files are every user's by design.
    assert {path for path in writable if not path.startswith("/proc/pressure/")} <= {"/proc/keys", "/proc/timer_list"}
    opened = "import os; os.close(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))"
    assert not confined.exec(["python3", "-c", opened], timeout_s=20).ok
    assert said(shell(confined, "head -c 16 /proc/kcore 2>/dev/null | wc -c")) == "0"
    assert not shell(confined, "mount -t tmpfs none /mnt").ok


def test_user_namespaces_are_closed(confined: Sandbox) -> None:
    assert not shell(confined, "unshare --user --map-root-user true").ok


def test_the_hosts_files_processes_and_engine_are_not_there(confined: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    hidden = [str(secret), str(Path.home() / ".ssh"), "/var/run/docker.sock", "/run/docker.sock"]
    for path in hidden:
        assert shell(confined, f"test -e '{path}'").exit_code == 1, path
    assert not shell(confined, "cat /etc/shadow").ok
    names = said(shell(confined, "cat /proc/[0-9]*/comm"))
    assert "pytest" not in names and "dockerd" not in names
    assert said(shell(confined, f"ls -d /proc/{os.getpid()} 2>/dev/null | wc -l")) == "0"


def test_the_hosts_processes_cannot_be_signalled_or_traced(confined: Sandbox) -> None:
    assert not shell(confined, f"kill -0 {os.getpid()}").ok


def test_descriptors_of_the_host_do_not_leak_in(confined: Sandbox, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        listing = said(
            confined.exec(["bash", "-c", "for f in /proc/self/fd/*; do readlink $f || true; done"], timeout_s=10)
        )
    assert all(line.startswith(("pipe:", "/dev/null", "/proc/")) for line in listing.splitlines()), listing
    assert len(listing.splitlines()) <= 4


REFUSED_CALLS = r"""
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (250, 321, 298, 425, 165, 272, 323), "aarch64": (219, 280, 241, 425, 40, 97, 282)}
for number in numbers[platform.machine()]:
    # keyctl, bpf, perf_event_open, io_uring_setup, mount, unshare(CLONE_NEWUSER), userfaultfd
    ctypes.set_errno(0)
    first = 0x10000000 if number in (272, 97) else 0
    done = libc.syscall(number, first, 0, 0, 0, 0)
    print(number, done, errno.errorcode.get(ctypes.get_errno()))
"""


def test_calls_that_nothing_here_needs_are_refused(confined: Sandbox) -> None:
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("call numbers of this machine are not known here")
    answers = said(confined.exec(["python3", "-c", REFUSED_CALLS], timeout_s=20)).splitlines()
    assert len(answers) == 7
    # Docker's own profile refuses io_uring only from engine 25 on.
    allowed = ("425 ",) if confined.kind == "docker" else ()
    assert [line for line in answers if not line.endswith(" -1 EPERM") and not line.startswith(allowed or "-")] == []


@pytest.mark.parametrize("kind", CONFINED)
def test_fork_bombs_stay_inside(kind: str, opener: Opener) -> None:
    sandbox = opener(kind)
    if "processes not limited" in sandbox.describe():
        pytest.skip("the number of processes cannot be limited on this host")
    program = (
        "import os, time\n"
        "n = 0\n"
        "try:\n"
        "    while n < 1000:\n"
        "        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "        n += 1\n"
        "except OSError: print('limit', n < 200)\n"
    )
    assert said(sandbox.exec(["python3", "-c", program], timeout_s=60)) == "limit True"
    bomb = shell(sandbox, ":(){ :|:& };:; sleep 0.5", timeout_s=1)
    assert bomb.status in ("exited", "timeout", "oom")
    assert said(shell(sandbox, "echo alive")) == "alive"


@pytest.mark.parametrize("kind", CONFINED)
def test_a_command_that_kills_all_it_can_harms_only_itself(kind: str, opener: Opener) -> None:
    sandbox = opener(kind)
    shell(sandbox, "kill -KILL 1; kill -TERM 1; kill -INT 1; kill -STOP 1; pkill -KILL python; kill -KILL -1")
    assert said(shell(sandbox, "echo alive")) == "alive"


@pytest.mark.parametrize("kind", CONFINED)
def test_a_read_only_workspace_stays_as_it_is(kind: str, opener: Opener, tmp_path: Path) -> None:
    workspace = tmp_path / "submission"
    workspace.mkdir()
    (workspace / "model_new.py").write_text("x = 1\n")
    sandbox = opener(kind, workspace=workspace, workspace_read_only=True)
    assert said(shell(sandbox, "cat model_new.py")) == "x = 1"
    assert not shell(sandbox, "touch new || echo x > model_new.py || rm -f model_new.py").ok
    with pytest.raises(PermissionError):
        sandbox.write("model_new.py", b"x = 2")
    assert (workspace / "model_new.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("kind", CONFINED)
def test_a_writable_mount_is_writable_and_others_are_not(kind: str, opener: Opener, tmp_path: Path) -> None:
    for name in ("cache", "skill"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
    mounts = (
        Mount(tmp_path / "cache", "/opt/agent-cache", read_only=False),
        Mount(tmp_path / "skill", "/opt/agent-skill"),
    )
    sandbox = opener(kind, mounts=mounts)
    said(shell(sandbox, "echo new > /opt/agent-cache/old; mkdir /opt/agent-cache/folder"))
    sandbox.write("/opt/agent-cache/folder/file", b"x")
    assert not shell(sandbox, "echo new > /opt/agent-skill/old").ok
    assert (tmp_path / "cache" / "old").read_text() == "new\n" and (tmp_path / "skill" / "old").read_text() == "old"


@pytest.mark.parametrize("kind", CONFINED)
def test_links_out_of_the_workspace_lead_nowhere(kind: str, opener: Opener, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("host")
    sandbox = opener(kind)
    said(
        shell(
            sandbox,
            f"ln -s '{outside}/secret' link; ln -s '{outside}' folder; ln -s /etc/passwd passwd; ln -s . loop;"
            "ln -s /tmp there; ln -s self self; mkdir real; ln -s /etc/passwd real/x; ln -s /proc/self/environ env",
        )
    )
    for path in ("link", "folder/secret", "passwd", "loop/link", "self", "real/x", "env", "loop/real/../link"):
        with pytest.raises(PermissionError):
            sandbox.read(path, limit=100)
    for path in ("folder/new", "there/new", "loop/new"):
        with pytest.raises(PermissionError):
            sandbox.write(path, b"x")
    sandbox.write("link", b"replaced")
    assert (outside / "secret").read_text() == "host"
    assert os.listdir(outside) == ["secret"]
    assert not (tmp_path / "workspace" / "link").is_symlink()


@pytest.mark.parametrize("kind", CONFINED)
def test_task_paths_with_spaces_letters_and_colons(kind: str, opener: Opener, tmp_path: Path) -> None:
    workspace = tmp_path / "mein Täsk: “1,ro=x”"
    tools = tmp_path / "werk zeuge, ö"
    tools.mkdir()
    (tools / "a b.py").write_text("print(1)")
    sandbox = opener(kind, workspace=workspace, mounts=(Mount(tools, "/opt/agent-tools"),))
    sandbox.write("ü b/c.txt", "é".encode())
    assert said(shell(sandbox, "cat 'ü b/c.txt'; python3 '/opt/agent-tools/a b.py'")) == "é1"


@pytest.mark.parametrize("kind", CONFINED)
def test_a_full_disk_is_an_error_that_says_so(kind: str, opener: Opener, tmp_path: Path) -> None:
    import subprocess

    workspace = tmp_path / "small"
    workspace.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(workspace)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        sandbox = opener(kind, workspace=workspace)
        with pytest.raises(OSError, match="No space left"):
            sandbox.write("big.bin", b"x" * (2 << 20))
        assert os.listdir(workspace) == []
        assert "No space left" in shell(sandbox, "head -c 2M /dev/zero > big.bin").stderr.text()
        sandbox.close()
    finally:
        subprocess.run(["umount", "-l", str(workspace)], check=True)


@pytest.mark.torch
@pytest.mark.parametrize("kind", CONFINED)
def test_torch_works_inside(kind: str, opener: Opener) -> None:
    sandbox = opener(kind)
    program = (
        "import torch, os\n"
        "x = torch.ones(64, 64)\n"
        "print(int((x @ x).sum()), os.access(torch.utils.cpp_extension.include_paths()[0], os.R_OK))\n"
    )
    program = "import torch.utils.cpp_extension\n" + program
    assert said(sandbox.exec([sandbox.python, "-I", "-c", program], timeout_s=120)) == "262144 True"
