"""A system call filter for bubblewrap: refuses what no compiler and no kernel under test needs.

Covers: kernel keyrings (shared with the user outside), loading code into the kernel, mounts and namespaces, performance
counters, io_uring, clocks, 32-bit entry points; the calls that Docker's default profile refuses too and that a
namespace does not already take the sense of. Everything else is allowed. Not covered: machines other than x86-64 and
aarch64, which get no filter (`describe` says so).
"""

import errno
import struct
from collections.abc import Mapping
from typing import Final

LOAD_WORD: Final = 0x20
JUMP_EQUAL: Final = 0x15
JUMP_AT_LEAST: Final = 0x35
RETURN: Final = 0x06
ALLOW: Final = 0x7FFF0000
REFUSE: Final = 0x00050000 | errno.EPERM
OFFSET_CALL: Final = 0
OFFSET_ARCHITECTURE: Final = 4
X32_BIT: Final = 0x40000000
ARCHITECTURES: Final[Mapping[str, int]] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers from the kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
# fmt: off
REFUSED: Final[Mapping[str, tuple[int, int]]] = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "clock_settime": (227, 112),
    "delete_module": (176, 106), "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "pivot_root": (155, 41), "quotactl": (179, 60),
    "reboot": (169, 142), "request_key": (249, 218), "setns": (308, 268), "settimeofday": (164, 170),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
# fmt: on


def refusing_filter(machine: str) -> bytes:
    """The filter as classic BPF in the machine's byte order; empty for a machine whose call numbers are not known."""
    if machine not in ARCHITECTURES:
        return b""
    column = list(ARCHITECTURES).index(machine)
    numbers = sorted({numbers[column] for numbers in REFUSED.values()})
    checks = [(JUMP_EQUAL, number) for number in numbers]
    if machine == "x86_64":
        checks.append((JUMP_AT_LEAST, X32_BIT))
    # After the checks come one instruction that allows and one that refuses.
    program = [
        _instruction(LOAD_WORD, OFFSET_ARCHITECTURE),
        _instruction(JUMP_EQUAL, ARCHITECTURES[machine], otherwise=len(checks) + 2),
        _instruction(LOAD_WORD, OFFSET_CALL),
    ]
    program += [_instruction(kind, value, then=len(checks) - place) for place, (kind, value) in enumerate(checks)]
    return b"".join([*program, _instruction(RETURN, ALLOW), _instruction(RETURN, REFUSE)])


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
