"""The built-in policy's turns: what it says and does for what it is shown, without a sandbox."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agent.backends.base import Message
from agent.backends.builtin.backend import BuiltinBackend
from agent.backends.replay import ScriptEnd
from agent.loop.actions import Action, parse_call

SYSTEM = "- Target: {target}. Policy: strict. Precision: strict.\n{facts}you see the first and last 5000 characters."
BUILT, VERIFIED = "Built kernels/fused.cpp in 2.0 s.", "Verified: correct and within the rules."
PROFILED = """Verified and timed. Median of one forward: 400.0 us.
- against eager PyTorch: 3.000x (95 % interval 2.900 to 3.100): faster
- against torch.compile: 1.500x (95 % interval 1.450 to 1.550): faster
"""
TIMES = "Exit code 0.\n" + "".join(
    f"./variant{k}.so best {time:.1f} median {time + 5:.1f}\n" for k, time in enumerate((500.0, 400.0, 600.0, 450.0))
)


def tensor(name: str, *shape: int, **more: Any) -> dict[str, Any]:
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return {"name": name, "shape": shape, "dtype": "float32", "stride": strides, "offset": 0, **more}


def report(op: str = "aten.gelu.default", **more: Any) -> str:
    graph = {
        "leaves": [
            tensor("p_w", 1024, kind="parameter", target="block.0.weight"),
            tensor("x", 512, 1024, kind="input", position=0),
        ],
        "nodes": [
            {"name": "mul", "op": "aten.mul.Tensor", "shape": [512, 1024], "dtype": "float32",
             "args": [{"of": "x"}, {"of": "p_w"}]},
            {"name": "out", "op": op, "shape": [512, 1024], "dtype": "float32", "args": [{"of": "mul"}]},
        ],
        "outputs": [{"of": "out"}],
        "nest": 0,
    }  # fmt: skip
    head = {
        "schema_version": 1,
        "tool": "trace_task",
        "status": "traced",
        "reasons": [],
        "seconds": 1.0,
        "graph": graph,
    }
    return "Exit code 0.\n" + json.dumps(head | more) + "\n"


class Episode:
    """A conversation with the policy; `see` answers its last turn, the last text for all calls that are left."""

    def __init__(self, target: str = "cpu", facts: str = "") -> None:
        self.messages = [Message(role="system", content=SYSTEM.format(target=target, facts=facts))]
        self.backend = BuiltinBackend()

    def turn(self) -> list[Action]:
        reply = self.backend.chat(self.messages, ())
        assert reply == self.backend.chat(self.messages, ()), "the same messages give the same turn"
        assert reply.text and reply.calls and reply.usage.cost_usd == 0.0
        self.messages.append(Message(role="assistant", content=reply.text, tool_calls=reply.calls))
        actions = [parse_call(call) for call in reply.calls]
        assert all(isinstance(action, Action) for action in actions), actions
        return [action for action in actions if isinstance(action, Action)]

    def see(self, *texts: str) -> None:
        calls = self.messages[-1].tool_calls
        padded = ["Created it."] * (len(calls) - len(texts)) + list(texts)
        for call, text in zip(calls, padded, strict=True):
            self.messages.append(Message(role="tool", content=text, tool_call_id=call.id))

    def names(self) -> list[str]:
        return [action.name for action in self.turn()]


def opened(text: str, **options: str) -> Episode:
    episode = Episode(**options)
    (first,) = episode.turn()
    assert first.name == "bash" and "trace_task.py model.py --target" in first.arguments.model_dump()["command"]
    episode.see(text)
    return episode


def written(actions: Sequence[Action]) -> dict[str, str]:
    values = [action.arguments.model_dump() for action in actions if action.name == "write_file"]
    return {value["path"]: value["content"] for value in values}


def test_an_episode_traces_writes_tries_variants_profiles_and_submits() -> None:
    episode = opened(report())
    actions = episode.turn()
    assert [action.name for action in actions] == ["write_file"] * 3 + ["compile"]
    files = written(actions)
    assert list(files) == ["kernels/simd.h", "kernels/fused.cpp", "model_new.py"]
    assert 'add_module("block", nn.Module())' in files["model_new.py"] and "verf(" in files["kernels/fused.cpp"]
    episode.see(BUILT)
    assert episode.names() == ["write_file", "bash"]
    episode.see(TIMES)
    edit, build = episode.turn()
    assert (edit.name, build.name) == ("edit_file", "compile")
    assert edit.arguments.model_dump()["new"] == "constexpr int UNROLL = 2;\n", "the second variant was the fastest"
    assert edit.arguments.model_dump()["old"] in files["kernels/fused.cpp"]
    episode.see("Edited it.", BUILT)
    assert episode.names() == ["profile"]
    episode.see(PROFILED)
    (submit,) = episode.turn()
    assert "torch.compile 1.50x (faster)" in submit.arguments.model_dump()["summary"]
    episode.see("Submitted. The judge takes over.")
    with pytest.raises(ScriptEnd, match="has submitted"):
        episode.turn()


def test_a_default_that_is_as_fast_as_any_stays() -> None:
    episode = opened(report())
    episode.turn()
    episode.see(BUILT)
    episode.turn()
    episode.see(TIMES.replace("400.0", "495.0").replace("450.0", "499.0"))
    assert episode.names() == ["profile"]


def test_variants_that_cannot_be_timed_are_left_alone() -> None:
    episode = opened(report())
    episode.turn()
    episode.see(BUILT)
    episode.turn()
    episode.see("Exit code 1.\n(no output)\n")
    assert episode.names() == ["profile"]


def test_an_operator_without_a_kernel_is_named_and_nothing_is_written() -> None:
    episode = opened(report("aten.cumsum.default"))
    with pytest.raises(ScriptEnd, match=r"submits nothing: no kernel for aten\.cumsum\.default"):
        episode.turn()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Exit code 1.\nTraceback: no such file\n", "could not be traced: Traceback"),
        ("Ended after 180 s (time limit).", "could not be traced"),
        (
            report(status="untraceable", graph=None, reasons=[{"code": "task.untraceable", "detail": "a branch"}]),
            "submits nothing: a branch",
        ),
    ],
)
def test_a_task_that_cannot_be_traced_ends_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(ScriptEnd, match=words):
        opened(text).turn()


@pytest.mark.parametrize(("copy", "next_action"), [(300.0, "verify"), (80.0, "profile")])
def test_kernels_that_are_as_fast_as_a_copy_need_no_profile(copy: float, next_action: str) -> None:
    episode = opened(report())
    episode.turn()
    episode.see(BUILT)
    episode.turn()
    episode.see(f"{TIMES}copy best {copy:.1f} median 350.0\n")
    episode.turn()
    episode.see("Edited it.", BUILT)
    assert episode.names() == [next_action]
    episode.see(VERIFIED if next_action == "verify" else PROFILED)
    (submit,) = episode.turn()
    assert f"{copy / 4:.0f} % of the speed of a plain copy" in submit.arguments.model_dump()["summary"]


def test_what_is_slower_than_eager_is_said_to_be() -> None:
    episode = opened(report())
    for seen in ((BUILT,), ("Exit code 1.\n(no output)\n",)):
        episode.turn()
        episode.see(*seen)
    episode.turn()
    episode.see(PROFILED.replace("3.000x", "0.700x").replace("2.900 to 3.100): faster", "0.650 to 0.750): slower"))
    (submit,) = episode.turn()
    assert "against eager PyTorch 0.70x (slower)" in submit.arguments.model_dump()["summary"]
    assert "slower than eager PyTorch: no gain" in episode.messages[-1].content


def test_what_does_not_build_is_taken_back() -> None:
    episode = opened(report())
    episode.turn()
    episode.see("The build failed.\n- build.compile: fused.cpp:3: no")
    assert_taken_back(episode, "did not compile: build.compile")


def test_what_is_not_right_is_taken_back() -> None:
    episode = opened(report())
    for seen in (BUILT, TIMES.replace("400.0", "495.0").replace("450.0", "499.0")):
        episode.turn()
        episode.see(seen)
    assert episode.names() == ["profile"]
    episode.see("Rejected:\n- numeric.mismatch: wrong values")
    assert_taken_back(episode, "not accepted: numeric.mismatch: wrong values")


def assert_taken_back(episode: Episode, words: str) -> None:
    (removal,) = episode.turn()
    assert removal.arguments.model_dump()["command"].startswith("rm -rf model_new.py kernels")
    episode.see("Exit code 0.\n(no output)")
    with pytest.raises(ScriptEnd, match=words):
        episode.turn()


def test_a_long_trace_is_read_in_parts() -> None:
    whole = report().removeprefix("Exit code 0.\n").ljust(12_000)
    omitted = "Exit code 0.\n" + whole[:5000] + "\n[... 2000 characters omitted; the complete output is in x ...]\n"
    episode = opened(omitted + whole[-5000:])
    for start in (0, 9900):
        (part,) = episode.turn()
        command = part.arguments.model_dump()["command"]
        assert f"tail -c +{start + 1} " in command and "head -c 9900" in command
        episode.see("Exit code 0.\n" + whole[start : start + 9900])
    assert "compile" in episode.names()


def test_target_cuda_is_cuda_where_nvcc_is_and_triton_where_not() -> None:
    episode = opened(report(), target="cuda", facts="- nvcc: release 13.0\n")
    files = written(episode.turn())
    assert "Pack<float, V>" in files["kernels/fused.cu"] and "cuda_extension.fused(" in files["model_new.py"]
    episode = opened(report(), target="cuda")
    actions = episode.turn()
    assert [action.name for action in actions] == ["write_file", "verify"]
    assert "@triton.jit" in written(actions)["model_new.py"]
    episode.see(VERIFIED)
    assert episode.names() == ["profile"]
