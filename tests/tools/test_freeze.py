"""Stopping a process, proving that it stayed stopped, finding what it left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from referee import freeze

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SPIN = """
import threading, time
def spin():
    while True: pass
for _ in range(3): threading.Thread(target=spin, daemon=True).start()
print("up", flush=True)
time.sleep(60)
"""


def start(code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "up"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_a_stopped_process_does_not_run_and_goes_on_afterwards():
    process = start(SPIN)
    try:
        freeze.stop(process.pid)
        assert set(freeze.thread_states(process.pid).values()) == {"T"}
        before, ran = freeze.switches(process.pid), freeze.ran_ns(freeze.scheduled_ns(process.pid))
        time.sleep(0.2)
        assert before is not None
        assert freeze.switches(process.pid) == before
        assert freeze.ran_ns(freeze.scheduled_ns(process.pid)) == ran
        freeze.resume(process.pid)
        time.sleep(0.2)
        assert freeze.switches(process.pid) is None
        assert freeze.ran_ns(freeze.scheduled_ns(process.pid)) > ran
    finally:
        end(process)


def test_only_threads_that_computed_are_said_to_have_waited():
    before = {1: (0, 0), 2: (500, 100), 3: (0, 0)}
    after = {1: (5, 300), 2: (900, 150), 3: (1, 4000), 4: (400, 20)}
    first, computing, idle, new = 300, 50, 4000, 20
    assert freeze.waited_ns(1, before, after, wall_ns=1000) == first + computing + new
    assert freeze.waited_ns(3, before, after, wall_ns=1000) == idle + computing + new


def test_a_timer_that_continues_its_own_process_is_seen():
    code = """
import ctypes, signal, time
libc = ctypes.CDLL(None)
event = (ctypes.c_byte * 64)()
ctypes.c_int.from_buffer(event, 8).value = signal.SIGCONT
timer = ctypes.c_void_p()
assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
every = (ctypes.c_long * 4)(0, 1000000, 0, 1000000)
assert libc.timer_settime(timer, 0, every, None) == 0
print("up", flush=True)
while True: pass
"""
    process = start(code)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        before = freeze.switches(process.pid)
        time.sleep(0.2)
        assert before is None or freeze.switches(process.pid) != before
    finally:
        end(process)


def test_a_process_that_ended_is_gone():
    process = start('print("up", flush=True)')
    process.wait()
    process.communicate()
    with pytest.raises(freeze.Gone):
        freeze.thread_states(process.pid)


def test_a_daemon_is_found_killed_and_told():
    code = textwrap.dedent(f"""
        import os, sys, time
        sys.path.insert(0, {str(TOOLS)!r})
        from referee import confine, freeze
        confine.adopt_orphans()
        worker = os.fork()
        if worker == 0:
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(60)
                os._exit(0)
            os.wait()
            time.sleep(60)
            os._exit(0)
        time.sleep(0.5)
        known = freeze.kill_all(os.getpid(), known=[worker], free=[])
        time.sleep(0.1)
        print(len(known), len(freeze.strangers(os.getpid(), known=[worker], free=[])), worker in freeze.parents())
        os.kill(worker, 9)
    """)
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["1", "0", "True"], done.stderr


def test_what_trusted_workers_start_is_left_alone():
    code = textwrap.dedent(f"""
        import os, sys, time
        sys.path.insert(0, {str(TOOLS)!r})
        from referee import freeze
        worker = os.fork()
        if worker == 0:
            if os.fork() == 0:
                time.sleep(60)
            time.sleep(60)
        time.sleep(0.3)
        counts = [len(freeze.strangers(os.getpid(), known=[worker], free=free)) for free in ([worker], [])]
        print(*counts)
        freeze.kill_all(os.getpid(), known=[], free=[])
    """)
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["0", "1"], done.stderr


def test_a_process_whose_first_thread_has_ended_is_none_that_has_ended():
    code = textwrap.dedent(f"""
        import ctypes, os, sys, threading, time
        sys.path.insert(0, {str(TOOLS)!r})
        from referee import freeze
        ended, half = os.fork(), 0
        if ended == 0:
            os._exit(0)
        half = os.fork()
        if half == 0:
            threading.Thread(target=time.sleep, args=(60,)).start()
            ctypes.CDLL(None).syscall(60, 0)  # exit of this thread alone (x86-64)
        time.sleep(0.5)
        state = open(f"/proc/{{half}}/stat").read().rsplit(")", 1)[1].split()[0]
        print(state, freeze.strangers(os.getpid(), known=[], free=[]) == [half], half in freeze.children(os.getpid()))
        print(freeze.kill_all(os.getpid(), known=[], free=[]) == [half])
    """)
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["Z", "True", "True", "True"], done.stderr


BUSY = """
import os, threading, time
idle = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(3)]
[thread.start() for thread in idle]
def work():
    print(threading.get_native_id(), flush=True)
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass
    time.sleep(60)
busy = threading.Thread(target=work, daemon=True)
busy.start()
busy.join()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_the_thread_that_computes_lies_beside_the_first_one_whatever_idle_ones_there_are():
    """By number the one that computes came fourth, and on two CPUs on the first thread's."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        try:
            thread = int(process.stdout.readline())
            time.sleep(1.0)
            freeze.stop(process.pid)
            freeze.spread(process.pid)
            first, other = os.sched_getaffinity(process.pid), os.sched_getaffinity(thread)
            assert len(first) == len(other) == 1 and first != other
            freeze.loosen(process.pid)
            assert os.sched_getaffinity(process.pid) == os.sched_getaffinity(0)
        finally:
            process.kill()
