"""The checks of `agent doctor` about sandboxes: engine and image, namespaces, and a self-test inside a real sandbox."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent.assets import asset
from agent.config import Config
from agent.errors import AgentError
from agent.judging.sandboxes import sandbox_limits
from agent.judging.tool_runs import Target
from agent.sandbox.base import TOOLS, Mount, Sandbox, SandboxSpec
from agent.sandbox.engine import connect, endpoint, has_image
from agent.sandbox.image import image_name, images
from agent.sandbox.labels import ROLE
from agent.sandbox.open import open_sandbox
from agent.ui.checks import Check

_SLACK_S: Final = 60.0
"""Beyond the self-test's own bound."""
PATIENCE_S: Final = {"cpu": 240.0, "cuda": 45.0}
"""For all layers together. A CPU's first torch.compile builds a precompiled header, which can take half a minute."""
_LAST_CHARS: Final = 300
_ADVICE: Final = {
    "no network": "this sandbox is not one: report it, and use another kind",
    "user": "run agent as an ordinary user",
    "walls": "a kernel with Landlock (Linux 6.7) closes it; a report cannot be forged without it either",
    "executable /tmp": "/tmp must allow execution and have room: see sandbox.tmp_gb",
    "g++": "install g++ (Debian: apt-get install g++)",
    "nvcc": "install the CUDA toolkit (docker: agent image build --cuda); where the driver is older, a newer driver",
    "driver": "does nvidia-smi work on this machine? sandbox.gpu chooses toolkit, cdi or nodes; or --target cpu",
    "kernel launch": "nvcc, driver and GPU must fit: see the lines above",
    "torch on the GPU": "torch must be built for this driver's CUDA (docker: agent image build --cuda)",
    "torch.compile on the GPU": "it needs Triton, gcc and Python's headers where torch is",
    "Triton": "it needs gcc, Python's headers and libcuda.so.1; submissions in Triton cannot be judged without it",
    "ncu": "without counters profiles fall back to CUPTI. If it may not read them: on the host, as root,\n"
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > /etc/modprobe.d/nvidia-counters.conf, then reboot",
    "compute-sanitizer": "it comes with the CUDA toolkit; without it nothing looks for races and bad accesses",
}
_BETTER_TO_HAVE: Final = ("walls", "ncu", "compute-sanitizer", "Triton")


def check_docker(config: Config, target: Target) -> Iterator[Check]:
    """Engine (endpoint, version) and the sandbox image; works with fewer rights than a running sandbox needs."""
    needed = config.sandbox.kind == "docker"
    try:
        client = connect()
    except AgentError as error:
        yield Check("docker", "engine", "fail" if needed else "skip", error.message, error.hint, needed)
        return
    try:
        yield Check("docker", "engine", "ok", f"{client.version().get('Version', '?')} at {endpoint(client)}")
        yield _image(config, client, target, needed)
    finally:
        client.close()


def _image(config: Config, client: Any, target: Target, needed: bool) -> Check:
    name = config.sandbox.image or image_name(target)
    advice = f"agent image build --{target}"
    if not has_image(client, name):
        return Check("docker", "image", "fail", f"{name} is not there", advice, needed=needed)
    if any(image.name == name and not image.current for image in images()):
        return Check("docker", "image", "warn", f"{name} was built by another version of cuda-agent", advice)
    return Check("docker", "image", "ok", name)


def check_bubblewrap(config: Config) -> Iterator[Check]:
    """Starts a real sandbox: a bwrap that is installed may still be forbidden to make namespaces."""
    needed = config.sandbox.kind == "bubblewrap"
    try:
        with _Opened(config, "bubblewrap", "cpu") as sandbox:
            done, described = sandbox.exec(["true"], timeout_s=20), sandbox.describe()
    except AgentError as error:
        yield Check("bubblewrap", "namespaces", "fail" if needed else "skip", error.message, error.hint, needed)
        return
    if not done.ok:
        detail = done.stderr.text()[-_LAST_CHARS:] or f"`true` ended with {done.exit_code}"
        yield Check("bubblewrap", "namespaces", "fail", detail, "use docker, or allow user namespaces", needed)
        return
    yield Check("bubblewrap", "namespaces", "ok", described.removeprefix("bubblewrap: "))


def check_inside(
    config: Config, kind: str, target: Target, *, needed: bool, quick: bool = False, patience_s: float = 0.0
) -> Iterator[Check]:
    """tools/self_test.py in a fresh sandbox of this kind. `quick` leaves out compilers' and profilers' layers."""
    group = f"inside {kind}"
    patience_s = patience_s or PATIENCE_S[target]
    began = time.monotonic()
    try:
        with _Opened(config, kind, target) as sandbox:
            if target == "cuda":
                access = sandbox.describe().partition("GPUs by ")[2] or "this machine's own"
                yield Check(group, "GPU access", "ok", access, seconds=round(time.monotonic() - began, 2))
            argv = [sandbox.python, "-I", f"{TOOLS}/self_test.py", "--target", target, f"--patience-s={patience_s:g}"]
            done = sandbox.exec([*argv, *(["--quick"] if quick else [])], timeout_s=patience_s + _SLACK_S)
    except AgentError as error:
        yield Check(group, "start", "fail", error.message, error.hint, needed)
        return
    try:
        results = json.loads(done.stdout.text())["checks"]
    except (ValueError, KeyError, TypeError):
        said = " ".join(done.stderr.text().split())[-_LAST_CHARS:]
        detail = f"the self-test gave no report ({done.status}, exit {done.exit_code}): {said}"
        advice = "is there a Python with torch at this path? see sandbox.python, sandbox.image"
        yield Check(group, "self-test", "fail", detail, advice, needed)
        return
    for result in results:
        yield _result(group, kind, result, needed=needed)


def _result(group: str, kind: str, result: dict[str, Any], *, needed: bool) -> Check:
    name, ok, detail = str(result["name"]), bool(result["ok"]), str(result["detail"])
    seconds = float(result.get("seconds", 0.0))
    if ok:
        return Check(group, name, "ok", detail, seconds=seconds)
    if kind == "none" and name in ("no network", "user"):
        return Check(group, name, "warn", detail, "nothing confines this kind", seconds=seconds)
    if result.get("unfinished"):
        return Check(group, name, "warn", detail, "not known; give it more time: --patience 240", seconds=seconds)
    if name in _BETTER_TO_HAVE:
        return Check(group, name, "warn", detail, _advice(name, kind), seconds=seconds)
    return Check(group, name, "fail", detail, _advice(name, kind), needed=needed, seconds=seconds)


def _advice(name: str, kind: str) -> str:
    if name in ("torch", "torch.compile"):
        image = "agent image build" if kind == "docker" else "pip install 'cuda-agent[local]', or set sandbox.python"
        return f"torch does not work there: {image}"
    return _ADVICE.get(name, "")


class _Opened:
    """A sandbox with an empty workspace and the tools, closed at the end; SandboxError where it cannot start."""

    def __init__(self, config: Config, kind: str, target: Target) -> None:
        self._config, self._kind, self._target = config, kind, target
        self._folder = tempfile.TemporaryDirectory(prefix="agent-doctor-", ignore_cleanup_errors=True)
        self._sandbox: Sandbox | None = None

    def __enter__(self) -> Sandbox:
        spec = SandboxSpec(
            workspace=Path(self._folder.name),
            mounts=(Mount(asset("tools"), TOOLS),),
            limits=sandbox_limits(self._config.sandbox),
            labels={ROLE: "doctor"},
            gpus="all" if self._target == "cuda" else "none",
        )
        try:
            self._sandbox = open_sandbox(self._config.sandbox, spec, target=self._target, kind=self._kind)
        except BaseException:
            self._folder.cleanup()
            raise
        return self._sandbox

    def __exit__(self, *error: object) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        self._folder.cleanup()
