"""Messages between the referee and a worker: two lengths, one JSON object, one binary part; descriptors travel beside.

What comes from a submission's worker is data: bounded in size, never unpickled, and checked field by field by whoever
reads it.
"""

import array
import json
import os
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, Final

HEADER: Final = struct.Struct("<II")
LIMIT_BYTES: Final = 32 << 20
MAX_DESCRIPTORS: Final = 4

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelTimeout(Exception):
    """No complete message came in time."""


class ChannelGarbage(Exception):
    """What came is not a message."""


@dataclass(frozen=True)
class Received:
    """One message: fields, binary part, descriptors (owned by the receiver from now on)."""

    fields: Message
    blob: bytes
    descriptors: tuple[int, ...]


def encode(fields: Message, *, blob: bytes = b"") -> bytes:
    body = json.dumps(fields, separators=(",", ":")).encode()
    return HEADER.pack(len(body), len(blob)) + body + blob


def send(channel: socket.socket, fields: Message, *, blob: bytes = b"", descriptors: tuple[int, ...] = ()) -> None:
    data = encode(fields, blob=blob)
    try:
        if descriptors:
            sent = socket.send_fds(channel, [data], list(descriptors))
            data = data[sent:]
        if data:
            channel.sendall(data)
    except TimeoutError as error:
        raise ChannelTimeout(str(error)) from error
    except OSError as error:
        raise ChannelClosed(str(error)) from error


def receive(channel: socket.socket, *, timeout_s: float | None = None, limit: int = LIMIT_BYTES) -> Received:
    """The next message; descriptors are taken only with its first bytes."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    descriptors: list[int] = []
    head = _exactly(channel, HEADER.size, deadline, descriptors)
    body_size, blob_size = HEADER.unpack(head)
    if body_size + blob_size > limit:
        _close(descriptors)
        raise ChannelGarbage(f"a message of {body_size + blob_size} bytes")
    body = _exactly(channel, body_size, deadline, descriptors)
    blob = _exactly(channel, blob_size, deadline, descriptors)
    try:
        fields = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        _close(descriptors)
        raise ChannelGarbage("not JSON") from error
    if not isinstance(fields, dict):
        _close(descriptors)
        raise ChannelGarbage("not a JSON object")
    return Received(fields=fields, blob=bytes(blob), descriptors=tuple(descriptors))


def _exactly(channel: socket.socket, count: int, deadline: float | None, descriptors: list[int]) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    at = 0
    while at < count:
        try:
            channel.settimeout(None if deadline is None else max(1e-3, deadline - time.monotonic()))
            size, ancillary, _, _ = channel.recvmsg_into(
                [view[at:]], socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
            )
        except TimeoutError as error:
            raise ChannelTimeout("no reply in time") from error
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                descriptors.extend(numbers)
        if not size:
            raise ChannelClosed("end of stream")
        at += size
    return data


def _close(descriptors: list[int]) -> None:
    for number in descriptors:
        os.close(number)
