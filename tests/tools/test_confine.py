"""What the filter of a submission's worker refuses, tried in a real process."""

import ast
import errno
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from referee import confine

TOOLS = Path(__file__).resolve().parents[2] / "tools"
NUMBERS = {
    "x86_64": {"ptrace": 101, "io_uring_setup": 425, "tkill": 200},
    "aarch64": {"ptrace": 117, "io_uring_setup": 425, "tkill": 130},
}
START = f"""
import ctypes, errno, os, signal, sys
sys.path.insert(0, {str(TOOLS)!r})
from referee import confine
libc = ctypes.CDLL(None, use_errno=True)
confine.drop_capabilities()
assert confine.filter_calls(SEALING)
def refused(call):
    try:
        call()
    except OSError as error:
        return error.errno in (errno.EPERM, errno.ENOSYS)
    return False
"""
pytestmark = pytest.mark.skipif(platform.machine() not in NUMBERS, reason="no filter for this machine's call numbers")


def run(body: str, *, sealing: str = "") -> subprocess.CompletedProcess[str]:
    code = START.replace("SEALING", sealing) + body
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "attempt",
    [
        "os.kill(os.getppid(), 0)",
        "os.kill(-1, 0)",
        "os.kill(1, signal.SIGCONT)",
        "os.sched_setaffinity(os.getppid(), {0})",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "os.pidfd_open(os.getppid())",
        "os.unshare(0x10000000) if hasattr(os, 'unshare') else os.kill(1, 0)",
    ],
)
def test_others_cannot_be_touched(attempt):
    done = run(f"print(refused(lambda: {attempt}))")
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize(
    "attempt",
    [
        "fcntl.fcntl(reader, fcntl.F_SETOWN, os.getppid())",
        "fcntl.fcntl(reader, 10, signal.SIGKILL)",
        "fcntl.fcntl(reader, 15, struct.pack('ii', 1, os.getppid()))",
        "fcntl.fcntl(reader, 1024, 0)",
        "fcntl.ioctl(socket.socket().fileno(), 0x8901, struct.pack('i', os.getppid()))",
        "fcntl.ioctl(socket.socket().fileno(), 0x8902, struct.pack('i', os.getppid()))",
    ],
)
def test_nobody_can_be_named_for_a_signal_of_the_kernels(attempt):
    body = "import fcntl, socket, struct\nreader, writer = os.pipe()\n"
    done = run(f"{body}print(refused(lambda: {attempt}), fcntl.fcntl(reader, fcntl.F_GETFL))")
    assert done.stdout.split() == ["True", "0"], done.stderr


def test_processes_outside_cannot_be_opened_even_where_they_are_dumpable():
    body = """
if libc.syscall(444, None, ctypes.c_size_t(0), 1) < 4:
    print("no landlock"); sys.exit()
for name in ("mem", "fd/1", "environ", "maps"):
    try:
        open(f"/proc/{os.getppid()}/{name}", "rb").read(1)
        print(name, "opened")
    except PermissionError:
        pass
import tempfile
with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
    open(f"{one}/file", "w").close()
    os.rename(f"{one}/file", f"{other}/file")
print("done")
"""
    said = run(body).stdout.strip()
    assert said in ("done", "no landlock"), said


COLUMN = ("x86_64", "aarch64").index(platform.machine()) if platform.machine() in NUMBERS else 0
SAYS_ERROR = """
def error_of(number, *arguments):
    ctypes.set_errno(0)
    code = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return ctypes.get_errno() if code == -1 else None
"""


def test_every_refused_call_is_refused():
    numbers = {name: confine.CALLS[name][COLUMN] for name in confine.REFUSED}
    body = f"print({{name: error_of(number, 0, 0, 0, 0, 0, 0) for name, number in {numbers}.items()}})"
    done = run(SAYS_ERROR + body)
    assert set(ast.literal_eval(done.stdout).values()) == {errno.EPERM}, (done.stdout, done.stderr)


@pytest.mark.parametrize("name", confine.KILLED)
def test_calls_into_another_process_end_this_one(name):
    done = run(f"{SAYS_ERROR}error_of({confine.CALLS[name][COLUMN]}, 0, 0, 0, 0, 0, 0); print('alive')")
    assert (done.returncode, done.stdout) == (-signal.SIGSYS, "")


def test_calls_that_name_another_process_are_refused_whatever_stands_in_the_upper_half():
    calls = [(confine.CALLS[name][COLUMN], index) for name, index in confine.SELF_ONLY]
    body = f"""
for number, index in {calls}:
    for upper in (0, 1 << 32, -1 << 32):
        arguments = [0] * 6
        arguments[index] = os.getppid() + upper
        print(error_of(number, *arguments))
"""
    assert set(run(SAYS_ERROR + body).stdout.split()) == {str(errno.EPERM)}


def test_commands_are_refused_whatever_stands_in_the_upper_half():
    calls = [(confine.CALLS[name][COLUMN], command) for name, commands in confine.COMMANDS for command in commands]
    body = f"""
for number, command in {calls}:
    for upper in (0, 1 << 32, -1 << 32):
        print(error_of(number, 0, command + upper, os.getppid()))
"""
    assert set(run(SAYS_ERROR + body).stdout.split()) == {str(errno.EPERM)}


def test_nothing_below_proc_is_written_and_all_else_is():
    body = """
import subprocess, tempfile
def kind(path, flags):
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return error.errno
if not confine.landlock_version() >= 4:
    print("no landlock"); sys.exit()
task = f"self/task/{os.getpid()}"
for path in ("self/oom_score_adj", f"{task}/oom_score_adj", f"{os.getppid()}/oom_score_adj", "self/mem"):
    assert kind(f"/proc/{path}", os.O_WRONLY) == errno.EACCES, path
    assert kind(f"/proc/{path}", os.O_RDONLY) is None or str(os.getppid()) in path, path
reader, writer = os.pipe()
memory = os.memfd_create("x")
for path in ("/dev/null", f"/proc/self/fd/{writer}", f"/proc/self/fd/{memory}"):
    assert kind(path, os.O_WRONLY) is None, path
with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory(dir="/dev/shm") as other:
    open(f"{one}/file", "w").close()
    os.mkdir(f"{one}/inner")
    os.rename(f"{one}/file", f"{one}/inner/file")
    open(f"{other}/file", "w").close()
print(subprocess.run("echo done > /dev/stdout", shell=True, capture_output=True, text=True).stdout.strip())
"""
    done = run(body, sealing="proc_read_only=True")
    assert done.stdout.strip() in ("done", "no landlock"), done.stderr


def test_io_uring_is_not_there():
    number = NUMBERS[platform.machine()]["io_uring_setup"]
    done = run(f"print(libc.syscall({number}, 1, 0), ctypes.get_errno() in (errno.EPERM, errno.ENOSYS))")
    assert done.stdout.split() == ["-1", "True"]


def test_ptrace_ends_the_process():
    done = run(f"libc.syscall({NUMBERS[platform.machine()]['ptrace']}, 16, os.getppid(), 0, 0); print('alive')")
    assert done.returncode == -signal.SIGSYS
    assert "alive" not in done.stdout


def test_ordinary_work_goes_on():
    body = """
import subprocess, threading
os.kill(os.getpid(), 0)
os.sched_setaffinity(0, os.sched_getaffinity(0))
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
print(subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True).stdout.strip())
"""
    assert run(body).stdout.strip() == "7"


def test_a_process_that_is_not_dumpable_cannot_be_read():
    body = """
import time
pid = os.fork()
if pid == 0:
    confine.set_dumpable(False)
    os.closerange(0, 3)
    time.sleep(5)
    os._exit(0)
time.sleep(0.5)
try:
    open(f"/proc/{pid}/mem", "rb")
    print("readable")
except PermissionError:
    print("denied")
"""
    done = run(body)
    assert done.stdout.strip() == "denied", done.stderr
