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
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from referee import announce, arena, confine, cuda_driver, flags, loading, oplog, pages, protocol, tree

M_PERTURB: Final = -6
DETAIL: Final = 1500
NO_MEMORY: Final = ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED")
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
        self.device = "cpu"
        self.policy = "strict"
        self.announcer: announce.Announcer | None = None  # where tensors lie in device memory
        self.packed: torch.Tensor | None = None
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
        self.policy = fields["policy"]
        filtered = False
        if fields["hostile"]:
            confine.drop_capabilities()
            confine.limit_resources(memory_bytes=fields["memory_bytes"], file_bytes=fields["file_bytes"])
            # A driver names its threads by a file in /proc, and what it does without was never tried.
            filtered = confine.filter_calls(proc_read_only=fields["target"] == "cpu")
        torch.set_num_threads(fields["threads"])  # the filter holds for one thread and what it starts
        if fields["target"] == "cuda":
            self.device = "cuda"
            cuda_driver.start()
            self.announcer = announce.Announcer()
            # load_inline asks the device otherwise, and warns.
            os.environ["TORCH_CUDA_ARCH_LIST"] = "{}.{}".format(*torch.cuda.get_device_capability())
        set_precision(fields["precision"])
        flags.Watch.arm()
        return {"ok": True, "filtered": filtered}, b"", ()

    def load_submission(self, request: protocol.Received) -> Reply:
        fields = request.fields
        init = tree.unflatten(fields["init"], iter(loading.tensors_from(request)))
        self.model = loading.load_submission(
            Path(fields["folder"]),
            module_folder=fields["module_folder"],
            init=init,
            seed=fields["seed"],
            device=self.device if fields["on_device"] else None,
        ).to(self.device)
        self.call = self.model
        return {"ok": True, "state": loading.describe_state(self.model)}, b"", ()

    def load_baseline(self, request: protocol.Received) -> Reply:
        fields = request.fields
        task = loading.load_task(fields["text"], device=self.device)
        self.model = task.build(seed=fields["seed"])
        self.call = loading.compiled(self.model, mode=fields["mode"]) if fields["compile"] else self.model
        return {"ok": True, "state": loading.describe_state(self.model)}, b"", ()

    def load_allowed(self, request: protocol.Received) -> Reply:
        """Not a submission: a forward that does what policy `strict` allows, to see where that leads inside torch."""
        from referee.allowed import Allowed

        torch.set_default_device(self.device)
        self.model = self.call = Allowed(request.fields["state"])
        return {"ok": True}, b"", ()

    def let_go(self, request: protocol.Received) -> Reply:
        gc.collect()  # what earlier calls left behind must not be taken for work of later ones
        pages.let_go()
        return {"ok": True}, b"", ()

    def load_oracle(self, request: protocol.Received) -> Reply:
        from referee.oracle import Oracle

        oracle = Oracle(request.fields["text"], seed=request.fields["seed"], device=self.device, pack=self.pack)
        self.model = oracle.model
        self.handlers.update(oracle.handlers)
        return oracle.summary(), b"", ()

    def room_for_weights(self, request: protocol.Received) -> Reply:
        """Fresh memory for a state_dict; the referee writes it while this process is stopped."""
        self.incoming = {}
        pointers = array.array("Q")
        for name, layout in request.fields["state"]:
            raw = torch.empty(max(layout["bytes"], 1), dtype=torch.uint8, device=self.device)
            self.incoming[name] = tree.view_as(raw, layout)
            pointers.append(raw.data_ptr())
        return {"ok": True, "segments": self.segments()}, pointers.tobytes(), ()

    def take_weights(self, request: protocol.Received) -> Reply:
        loading.load_state(self.model, self.incoming)
        self.incoming = {}
        return {"ok": True}, b"", ()

    def where_weights(self, request: protocol.Received) -> Reply:
        """Where parameters and buffers lie now, in the order of the names asked for."""
        state = self.model.state_dict()
        values = [state[name] for name in request.fields["names"]]
        pointers = array.array("Q", [value.data_ptr() for value in values])
        reply = {"ok": True, "layouts": [tree.layout_of(value) for value in values], "segments": self.segments()}
        return reply, pointers.tobytes(), ()

    def prepare(self, request: protocol.Received) -> Reply:
        """Room for the next batch's inputs at new addresses; their content comes when the batch starts."""
        fields = request.fields
        self.items, self.outputs = [], []
        ctypes.CDLL(None).mallopt(ctypes.c_int(M_PERTURB), ctypes.c_int(fields["perturb"]))
        self.pad = torch.empty(64 * fields["pad"], dtype=torch.uint8, device=self.device)
        pointers = array.array("Q")
        for spec in _specs(fields):
            leaves = []
            for layout in tree.tensors_of(spec):
                raw = torch.empty(max(layout["bytes"], 1), dtype=torch.uint8, device=self.device)
                leaves.append(tree.view_as(raw, layout))
                pointers.append(raw.data_ptr())
            self.items.append(tuple(tree.unflatten(spec, iter(leaves))))
        if self.announcer is not None:  # after the inputs, which would be put into what is free again
            _claim_and_free(fields["room"], count=int(fields["count"]), perturb=fields["perturb"])
        return {"ok": True, "segments": self.segments()}, pointers.tobytes(), ()

    def go(self, request: protocol.Received) -> Reply:
        began = time.perf_counter_ns()
        names: list[str] | None = None
        kernels: list[list[Any]] | None = None
        if request.fields.get("idle"):
            assert self.pad is not None
            self.pad.zero_()
            if self.pad.is_cuda:
                torch.cuda.synchronize()
            outputs = [self.pad]
        elif request.fields["log"]:
            names, kernels, outputs = oplog.watched(lambda: self._run_items(), device=self.device, policy=self.policy)
        else:
            outputs = self._run_items()
        if any(leaf.is_conj() or leaf.is_neg() for leaf in tree.leaves_of(outputs[0])):
            outputs = [tree.resolved(output) for output in outputs]  # the values, not a promise of them
            if self.announcer is not None:
                torch.cuda.synchronize()
        ran_ns = time.perf_counter_ns() - began
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
            "ran_ns": ran_ns,  # believed of a trusted worker only
        }
        if self.announcer is not None:
            reply["kernels"] = kernels
            reply["devices"] = sorted({leaf.device.type for leaf in leaves})
            reply["segments"] = self.announcer.missing(pointers)
        return reply, pointers.tobytes(), ()

    def _run_items(self) -> list[Any]:
        outputs: list[Any] = []
        call = self.call
        assert call is not None
        for item in self.items:
            outputs.append(call(*item))
        if self.announcer is not None:
            torch.cuda.synchronize()
        return outputs

    def segments(self) -> announce.Segments | None:
        return None if self.announcer is None else self.announcer.everything()

    def pack(self, tensors: list[torch.Tensor]) -> tuple[protocol.Message, tuple[int, ...]]:
        """Tensors for the referee: a descriptor on the CPU; in device memory they stay here until the next are
        packed.
        """
        if self.announcer is None:
            return arena.pack_for_referee(tensors)
        self.packed = None
        self.packed, offsets = arena.pack_on_device(tensors)
        place = {"packed": self.packed.data_ptr(), "packed_bytes": self.packed.numel()}
        return {"offsets": offsets, "segments": self.segments(), **place}, ()

    def describe(self, request: protocol.Received) -> Reply:
        """Layouts of all outputs of the last batch, once where they are all the same."""
        specs = [tree.flatten(output)[0] for output in self.outputs]
        leaves = [leaf for output in self.outputs for leaf in tree.flatten(output)[1]]
        if all(spec == specs[0] for spec in specs):
            specs = specs[:1]
        exact = all(type(leaf) in (torch.Tensor, torch.nn.Parameter) and not leaf.__dict__ for leaf in leaves)
        return {"ok": True, "specs": specs, "exact": exact}, b"", ()


def _claim_and_free(sizes: list[int], *, count: int, perturb: int) -> None:
    """Make torch's allocator hold memory for this many outputs, so that none has to be asked for inside the clock,
    and leave a pattern in it, as malloc does on the CPU.
    """
    held = [torch.empty(max(size, 1), dtype=torch.uint8, device="cuda") for _ in range(count) for size in sizes]
    if perturb:
        for block in held:
            block.fill_(perturb ^ 0xFF)


def set_precision(precision: str) -> None:
    """The same flags in every worker; torch itself lets cuDNN use TF32 by default."""
    # Not only CUDA's, so that whoever sets what is in force sets nothing new.
    torch.set_float32_matmul_precision("highest" if precision == "strict" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "strict"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = precision == "bf16"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = precision == "bf16"


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
    memory = isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)
    code = "oom" if memory else "exit" if isinstance(error, SystemExit) else "exception"
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = [frame for frame in traceback.extract_tb(sys.exc_info()[2]) if "/referee/" not in frame.filename]
    if frames:
        text += f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line})"
    return {"error": code, "detail": text[:DETAIL]}
