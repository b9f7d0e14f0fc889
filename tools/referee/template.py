"""The process from which all workers are forked: it has imported torch once, has one thread, and never sees a task or
a submission.

Started as `python -I template.py` with a control socket as descriptor 3. A request carries the worker's socket and the
write end of its error pipe; the answer is its process id. `reap` waits for a worker and tells how it ended.
"""

import gc
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from referee import confine, flags, protocol, worker

CONTROL: Final = 3


def main() -> None:
    places = flags.find()  # while this process may still read its own memory
    confine.set_dumpable(False)
    confine.die_with_parent()
    torch.set_grad_enabled(False)
    choose_math_kernels()
    gc.freeze()
    control = socket.socket(fileno=CONTROL)
    protocol.send(control, {"ready": True, "torch": torch.__version__, "flags": places})
    while True:
        try:
            request = protocol.receive(control)
        except protocol.ChannelClosed:
            return
        if request.fields["op"] == "fork":
            _fork(control, request)
        else:
            protocol.send(control, _reap(int(request.fields["pid"])))


def choose_math_kernels() -> None:
    """Let MKL's vector functions choose their kernels for this CPU while there is one thread, for all workers to come.

    The first call in a process makes that choice. Where it comes from two threads at once, one of them may compute with
    a kernel of lower accuracy: in 11 of 1,500 fresh processes, tanh after a matrix product had an RMS error of 1.2e-5
    instead of 9e-8 (torch 2.13, two CPUs). A right submission was then rejected, or a tolerance learned too wide.
    """
    torch.set_num_threads(1)
    torch.tanh(torch.zeros(64))


def _fork(control: socket.socket, request: protocol.Received) -> None:
    channel, errors = request.descriptors
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            _become_worker(channel, errors)
        finally:
            os._exit(70)
    os.close(channel)
    os.close(errors)
    protocol.send(control, {"pid": pid})


def _become_worker(channel: int, errors: int) -> NoReturn:
    os.setsid()
    confine.die_with_parent()
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 0)
    os.dup2(silence, 1)
    os.dup2(errors, 2)
    kept = os.dup2(channel, CONTROL, inheritable=False)
    os.closerange(CONTROL + 1, 4096)
    # Python's own streams must not fail when the error pipe is full; native code may lose its output there.
    sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    confine.set_dumpable(True)  # until the referee has opened /proc/PID/mem
    worker.serve(socket.socket(fileno=kept))
    os._exit(0)


def _reap(pid: int) -> protocol.Message:
    with suppress(ChildProcessError):
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return {"signal": os.WTERMSIG(status)}
        return {"exit": os.WEXITSTATUS(status)}
    return {"exit": None}


if __name__ == "__main__":
    main()
