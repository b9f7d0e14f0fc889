"""Messages between referee and worker, whole and broken."""

import os
import socket
import struct

import pytest
from referee import protocol


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def test_fields_blob_and_descriptors_arrive(ends):
    one, other = ends
    descriptor = os.memfd_create("x")
    os.write(descriptor, b"inside")
    protocol.send(one, {"op": "x", "n": [1, 2]}, blob=b"\0\1\2", descriptors=(descriptor,))
    os.close(descriptor)
    got = protocol.receive(other, timeout_s=5.0)
    assert (got.fields, got.blob) == ({"op": "x", "n": [1, 2]}, b"\0\1\2")
    assert os.pread(got.descriptors[0], 6, 0) == b"inside"
    os.close(got.descriptors[0])


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<II", 5, 0) + b"{oops",
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 0xFFFFFFFF, 0xFFFFFFFF),
        struct.pack("<II", 40_000, 0) + b"[" * 40_000,
    ],
)
def test_garbage_is_named(ends, raw):
    one, other = ends
    one.sendall(raw)
    with pytest.raises(protocol.ChannelGarbage):
        protocol.receive(other, timeout_s=5.0)


def test_silence_and_an_end_are_told_apart(ends):
    one, other = ends
    one.sendall(b"\1")
    with pytest.raises(protocol.ChannelTimeout):
        protocol.receive(other, timeout_s=0.05)
    one.close()
    with pytest.raises(protocol.ChannelClosed):
        protocol.receive(other, timeout_s=5.0)
