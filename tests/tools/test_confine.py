"""What the filter of a submission's worker refuses, tried in a real process."""

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
assert confine.filter_calls()
def refused(call):
    try:
        call()
    except OSError as error:
        return error.errno in (errno.EPERM, errno.ENOSYS)
    return False
"""
pytestmark = pytest.mark.skipif(platform.machine() not in NUMBERS, reason="no filter for this machine's call numbers")


def run(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", START + body], capture_output=True, text=True, timeout=60, check=False
    )


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
