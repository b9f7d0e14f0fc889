"""What a process does to itself before it may matter: not dumpable, no capabilities, a seccomp filter, limits, and
where the kernel has it a Landlock domain.

Covers: reading and writing other processes' memory (ptrace, process_vm_*, pidfd_getfd, /proc/PID/mem of processes that
are not dumpable, with Landlock of all), signals to others (also those that a kernel sends on behalf of a descriptor's
owner: F_SETOWN, FIOSETOWN), changing others' affinity or priority, io_uring and aio (which work on while their owner is
stopped); with Landlock and proc_read_only writing below /proc (oom_score_adj says whom the kernel ends when memory is
short). Does not cover: a hole in the kernel; the file system (the sandbox around the tools does that). Only x86-64 and
aarch64 have a filter. Landlock: any process outside the domain is out of reach from Linux 6.7 on, signals to it from
6.12 on.
"""

import ctypes
import errno
import os
import platform
import resource
import struct
from contextlib import suppress
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_SECCOMP: Final = 22
PR_SET_NO_NEW_PRIVS: Final = 38
PR_SET_CHILD_SUBREAPER: Final = 36
SECCOMP_MODE_FILTER: Final = 2
KILL_PROCESS: Final = 0x80000000
ALLOW: Final = 0x7FFF0000
ERRNO: Final = 0x00050000

# name: (x86-64, aarch64); numbers from the kernel's unistd tables
CALLS: Final = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "userfaultfd": (323, 282), "kcmp": (312, 272), "perf_event_open": (298, 241), "bpf": (321, 280), "keyctl": (250,
    219),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0),
    "io_submit": (209, 2), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "unshare": (272, 97),
    "setns": (308, 268), "move_pages": (279, 239), "migrate_pages": (256, 238), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "tkill": (200, 130), "kill": (62, 129), "tgkill": (234, 131),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "prlimit64": (302, 261), "fcntl": (72, 25), "ioctl": (16, 29),
}  # fmt: skip
KILLED: Final = ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "userfaultfd")
REFUSED: Final = (
    "kcmp", "perf_event_open", "bpf", "keyctl", "io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup",
    "io_submit",
    "pidfd_open", "pidfd_send_signal", "process_madvise", "process_mrelease", "mount", "umount2", "pivot_root",
    "unshare", "setns",
    "move_pages", "migrate_pages", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tkill",
    "setpriority", "ioprio_set",
)  # fmt: skip
# (call, index of the argument that names a process): allowed for the caller itself only
SELF_ONLY: Final = (
    ("kill", 0), ("tgkill", 0), ("sched_setaffinity", 0), ("sched_setscheduler", 0), ("sched_setparam", 0),
    ("sched_setattr", 0),
    ("prlimit64", 0),
)  # fmt: skip

# (call, values of its second argument): they name a process that the kernel signals later, or make it do so
COMMANDS: Final = (
    # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
    ("fcntl", (8, 10, 15, 1024, 1026)),
    # FIOSETOWN, SIOCSPGRP
    ("ioctl", (0x8901, 0x8902)),
)
LANDLOCK_CREATE: Final = 444  # the same numbers on all machines
LANDLOCK_ADD: Final = 445
LANDLOCK_RESTRICT: Final = 446
LANDLOCK_VERSION: Final = 1
PATH_BENEATH: Final = 1
BIND_TCP: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
REFER: Final = 1 << 13
ABSTRACT_SOCKETS_AND_SIGNALS: Final = (1 << 0) | (1 << 1)

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int = 0) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"prctl({option})")


def set_dumpable(on: bool) -> None:
    """A process that is not dumpable cannot be read by others of its uid (/proc/PID/mem, ptrace)."""
    prctl(PR_SET_DUMPABLE, int(on))


def die_with_parent() -> None:
    prctl(PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Orphans below this process become its children, so that a daemon cannot leave the tree that is scanned and
    killed.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def drop_capabilities() -> None:
    """Also for uid 0, which could otherwise read any process."""
    if os.geteuid() != 0:
        return
    number = {"x86_64": 126, "aarch64": 91}.get(platform.machine())
    if number is None:
        return
    header = struct.pack("<Ii", 0x20080522, 0)
    if _libc.syscall(ctypes.c_long(number), header, struct.pack("<6I", 0, 0, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset")


def limit_resources(*, memory_bytes: int | None, file_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as handle:  # noqa: PTH123 - before pathlib is needed
        handle.write("1000")


def filter_calls(*, proc_read_only: bool = False) -> bool:
    """Install the filter for this process and all that it starts; False where this machine's numbers are not known.

    Only while there is one thread: others would stay without. `proc_read_only`: see enter_domain.
    """
    column = {"x86_64": 0, "aarch64": 1}.get(platform.machine())
    if column is None:
        return False
    program = _program(column, os.getpid())
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    enter_domain(proc_read_only=proc_read_only)
    code = b"".join(program)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Fprog(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    fprog = Fprog(len(program), ctypes.addressof(buffer))
    if _libc.prctl(
        PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(fprog), ctypes.c_ulong(0), ctypes.c_ulong(0)
    ):
        number = ctypes.get_errno()
        if number == errno.EINVAL:
            return False
        raise OSError(number, os.strerror(number), "seccomp")
    return True


def enter_domain(*, proc_read_only: bool = False) -> bool:
    """No access to processes outside (their memory, descriptors, environment), whoever they are; False where the kernel
    has no Landlock that does this. Needs no_new_privs; holds for this thread and its children.

    `proc_read_only` forbids to open anything below /proc for writing, above all oom_score_adj, which is no part of the
    access that a domain guards: whoever lowers its own and raises that of the processes around the judge decides which
    of them goes when memory is short, and a judge that is gone has no verdict.
    """
    version = landlock_version()
    if version < 4:
        return False
    return (proc_read_only and _entered(version, files=WRITE_FILE | REFER)) or _entered(version, files=0)


def _entered(version: int, *, files: int) -> bool:
    # struct landlock_ruleset_attr: handled_access_fs, handled_access_net, scoped
    scoped = ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0
    asked = struct.pack("<3Q", files, 0 if version >= 6 else BIND_TCP, scoped)[: 24 if version >= 6 else 16]
    rules = _libc.syscall(LANDLOCK_CREATE, asked, ctypes.c_size_t(len(asked)), 0)
    if rules < 0:
        return False
    try:
        allowed = not files or _allow_outside_of_proc(rules, files)
        return bool(allowed and _libc.syscall(LANDLOCK_RESTRICT, rules, 0) == 0)
    finally:
        os.close(rules)


def landlock_version() -> int:
    """Of the kernel's interface; 0 where it has none."""
    return max(0, int(_libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), LANDLOCK_VERSION)))


def _allow_outside_of_proc(rules: int, files: int) -> bool:
    """Rules only ever allow: one for each folder beside /proc. Renaming between them stays possible, since all have the
    same (compilers' caches do it). False where one folder cannot have a rule: honest code would miss it.
    """
    for entry in os.scandir("/"):
        if entry.name == "proc" or not entry.is_dir(follow_symlinks=False):
            continue
        folder = os.open(entry.path, os.O_PATH | os.O_CLOEXEC)
        try:
            # struct landlock_path_beneath_attr, packed: allowed_access, parent_fd
            if _libc.syscall(LANDLOCK_ADD, rules, PATH_BENEATH, struct.pack("<Qi", files, folder), 0):
                return False
        finally:
            os.close(folder)
    return True


def _op(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("<HBBI", code, jt, jf, k & 0xFFFFFFFF)


def _program(column: int, pid: int) -> list[bytes]:
    """BPF: offsets are those of struct seccomp_data (nr 0, arch 4, args from 16, low half first)."""
    load, equal, at_least, ret = 0x20, 0x15, 0x35, 0x06
    arch = (0xC000003E, 0xC00000B7)[column]
    program = [_op(load, 4), _op(equal, arch, jt=1, jf=0), _op(ret, KILL_PROCESS), _op(load, 0)]
    if column == 0:  # the x32 calls would bypass the numbers below
        program += [_op(at_least, 0x40000000, jt=0, jf=1), _op(ret, ERRNO | errno.ENOSYS)]
    for name in KILLED:
        program += [_op(equal, CALLS[name][column], jt=0, jf=1), _op(ret, KILL_PROCESS)]
    for name in REFUSED:
        program += [_op(equal, CALLS[name][column], jt=0, jf=1), _op(ret, ERRNO | errno.EPERM)]
    for name, index in SELF_ONLY:
        program += [
            _op(equal, CALLS[name][column], jt=0, jf=5),
            _op(load, 16 + 8 * index),
            _op(equal, pid, jt=2, jf=0),
            _op(equal, 0, jt=1, jf=0),
            _op(ret, ERRNO | errno.EPERM),
            _op(ret, ALLOW),
        ]
    for name, commands in COMMANDS:
        # Only the low half counts: the kernel takes it as an unsigned int.
        program += [_op(equal, CALLS[name][column], jt=0, jf=2 * len(commands) + 2), _op(load, 16 + 8)]
        for command in commands:
            program += [_op(equal, command, jt=0, jf=1), _op(ret, ERRNO | errno.EPERM)]
        program += [_op(ret, ALLOW)]
    return [*program, _op(ret, ALLOW)]
