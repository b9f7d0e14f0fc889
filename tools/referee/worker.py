"""One worker: it loads a module, makes room for inputs, runs a batch when told to, and says where the outputs lie.

In a submission's worker everything here may be replaced by the submission while it runs; the referee believes none of
it. It believes memory that it has read while the worker was stopped.
"""

import array
import ctypes
import gc
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from referee import confine, loading, oplog, pages, protocol, tree

M_PERTURB: Final = -6
DETAIL: Final = 1500
Reply = tuple[protocol.Message, bytes, tuple[int, ...]]


class Worker:
    """State and operations of a worker; `handlers` maps an operation's name to its method."""

    def __init__(self) -> None:
        self.model: Any = None
        self.call: Callable[..., Any] | None = None
        self.items: list[tuple[Any, ...]] = []
        self.outputs: list[Any] = []
        self.incoming: dict[str, torch.Tensor] = {}
        self.pad: torch.Tensor | None = None
        self.handlers: dict[str, Callable[[protocol.Received], Reply]] = {
            "seal": self.seal,
            "load_submission": self.load_submission,
            "load_baseline": self.load_baseline,
            "load_oracle": self.load_oracle,
            "room_for_weights": self.room_for_weights,
            "take_weights": self.take_weights,
            "where_weights": self.where_weights,
            "prepare": self.prepare,
            "go": self.go,
            "describe": self.describe,
            "load_allowed": self.load_allowed,
            "let_go": self.let_go,
            "graphs": lambda request: ({"ok": True, **loading.compile_counts()}, b"", ()),
        }

    def seal(self, request: protocol.Received) -> Reply:
        """Environment, limits and walls; afterwards no other process of this uid can look inside."""
        fields = request.fields
        confine.set_dumpable(False)
        os.environ.update(fields["environment"])
        for name in ("HOME", "TMPDIR"):
            Path(fields["environment"][name]).mkdir(parents=True, exist_ok=True)
        os.chdir(fields["environment"]["TMPDIR"])
        torch.set_num_threads(fields["threads"])
        filtered = False
        if fields["hostile"]:
            confine.drop_capabilities()
            confine.limit_resources(memory_bytes=fields["memory_bytes"], file_bytes=fields["file_bytes"])
            filtered = confine.filter_calls()
        return {"ok": True, "filtered": filtered}, b"", ()

    def load_submission(self, request: protocol.Received) -> Reply:
        fields = request.fields
        init = tree.unflatten(fields["init"], iter(loading.tensors_from(request)))
        self.model = loading.load_submission(
            Path(fields["folder"]), module_folder=fields["module_folder"], init=init, seed=fields["seed"]
        )
        self.call = self.model
        return {"ok": True, "state": loading.describe_state(self.model)}, b"", ()

    def load_baseline(self, request: protocol.Received) -> Reply:
        fields = request.fields
        task = loading.load_task(fields["text"])
        self.model = task.build(seed=fields["seed"])
        self.call = loading.compiled(self.model, mode=fields["mode"]) if fields["compile"] else self.model
        return {"ok": True, "state": loading.describe_state(self.model)}, b"", ()

    def load_allowed(self, request: protocol.Received) -> Reply:
        """Not a submission: a forward that does what policy `strict` allows, to see where that leads inside torch."""
        from referee.allowed import Allowed

        self.model = self.call = Allowed(request.fields["state"])
        return {"ok": True}, b"", ()

    def let_go(self, request: protocol.Received) -> Reply:
        gc.collect()  # what earlier calls left behind must not be taken for work of later ones
        pages.let_go()
        return {"ok": True}, b"", ()

    def load_oracle(self, request: protocol.Received) -> Reply:
        from referee.oracle import Oracle

        oracle = Oracle(request.fields["text"], seed=request.fields["seed"])
        self.handlers.update(oracle.handlers)
        return oracle.summary(), b"", ()

    def room_for_weights(self, request: protocol.Received) -> Reply:
        """Fresh memory for a state_dict; the referee writes it while this process is stopped."""
        self.incoming = {}
        pointers = array.array("Q")
        for name, layout in request.fields["state"]:
            raw = torch.empty(max(layout["bytes"], 1), dtype=torch.uint8)
            self.incoming[name] = tree.view_as(raw, layout)
            pointers.append(raw.data_ptr())
        return {"ok": True}, pointers.tobytes(), ()

    def take_weights(self, request: protocol.Received) -> Reply:
        loading.load_state(self.model, self.incoming)
        self.incoming = {}
        return {"ok": True}, b"", ()

    def where_weights(self, request: protocol.Received) -> Reply:
        """Where parameters and buffers lie now, in the order of the names asked for."""
        state = self.model.state_dict()
        values = [state[name] for name in request.fields["names"]]
        pointers = array.array("Q", [value.data_ptr() for value in values])
        return {"ok": True, "layouts": [tree.layout_of(value) for value in values]}, pointers.tobytes(), ()

    def prepare(self, request: protocol.Received) -> Reply:
        """Room for the next batch's inputs at new addresses; their content comes when the batch starts."""
        fields = request.fields
        self.items, self.outputs = [], []
        ctypes.CDLL(None).mallopt(ctypes.c_int(M_PERTURB), ctypes.c_int(fields["perturb"]))
        self.pad = torch.empty(64 * fields["pad"], dtype=torch.uint8)
        pointers = array.array("Q")
        for spec in _specs(fields):
            leaves = []
            for layout in tree.tensors_of(spec):
                raw = torch.empty(max(layout["bytes"], 1), dtype=torch.uint8)
                leaves.append(tree.view_as(raw, layout))
                pointers.append(raw.data_ptr())
            self.items.append(tuple(tree.unflatten(spec, iter(leaves))))
        return {"ok": True}, pointers.tobytes(), ()

    def go(self, request: protocol.Received) -> Reply:
        if request.fields["log"]:
            names, outputs = oplog.watched(lambda: _run(self.call, self.items))
        else:
            names, outputs = None, _run(self.call, self.items)
        self.outputs = outputs
        try:
            pointers = array.array("Q", [torch.Tensor.data_ptr(output) for output in outputs])
        except TypeError:
            pointers = array.array("Q", [leaf.data_ptr() for output in outputs for leaf in tree.leaves_of(output)])
        spec, leaves = tree.flatten(outputs[0])
        reply = {
            "nonce": request.fields["nonce"],
            "spec": spec,
            "exact": all(type(leaf) in (torch.Tensor, torch.nn.Parameter) for leaf in leaves),
            "bare": all(not leaf.__dict__ for leaf in leaves),
            "names": names,
        }
        return reply, pointers.tobytes(), ()

    def describe(self, request: protocol.Received) -> Reply:
        """Layouts of all outputs of the last batch, once where they are all the same."""
        specs = [tree.flatten(output)[0] for output in self.outputs]
        leaves = [leaf for output in self.outputs for leaf in tree.flatten(output)[1]]
        if all(spec == specs[0] for spec in specs):
            specs = specs[:1]
        exact = all(type(leaf) in (torch.Tensor, torch.nn.Parameter) and not leaf.__dict__ for leaf in leaves)
        return {"ok": True, "specs": specs, "exact": exact}, b"", ()


def _run(call: Any, items: list[tuple[Any, ...]]) -> list[Any]:
    outputs: list[Any] = []
    for item in items:
        outputs.append(call(*item))
    return outputs


def _specs(fields: protocol.Message) -> list[tree.Spec]:
    specs: list[tree.Spec] = fields["specs"]
    return specs * int(fields["count"]) if len(specs) == 1 else specs


def serve(channel: socket.socket) -> None:
    """Answer requests until the referee is gone. Whatever goes wrong in a handler is an answer too."""
    worker = Worker()
    while True:
        try:
            request = protocol.receive(channel)
        except protocol.ChannelClosed:
            return
        try:
            fields, blob, descriptors = worker.handlers[request.fields["op"]](request)
        except loading.LoadError as error:
            fields, blob, descriptors = {"error": error.code, "detail": error.detail[-DETAIL:]}, b"", ()
        except BaseException as error:
            fields, blob, descriptors = _failure(error), b"", ()
        protocol.send(channel, fields, blob=blob, descriptors=descriptors)
        for number in descriptors:
            os.close(number)


def _failure(error: BaseException) -> protocol.Message:
    memory = isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "out of memory" in str(error)
    code = "oom" if memory else "exit" if isinstance(error, SystemExit) else "exception"
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = [frame for frame in traceback.extract_tb(sys.exc_info()[2]) if "/referee/" not in frame.filename]
    if frames:
        text += f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line})"
    return {"error": code, "detail": text[:DETAIL]}
