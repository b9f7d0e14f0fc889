"""Docker sandbox: one container per sandbox, its PID 1 runs the commands (runner.py).

Covers: no network, no capabilities, no-new-privileges, a user without rights, a read-only root, limits on memory (swap
included), processes, /tmp and shared memory, the workspace as the only writable mount; nothing of a command outlives
it, and no command can forge another one's result. PID 1 is the runner rather than an init with `sleep infinity`: a
plain engine exec takes 55 ms on two cores and leaves processes behind, the runner takes 1 ms, reaps, cannot be
signalled from inside, and ends with the process that opened the sandbox, so that kill -9 leaves no running container.
Not covered: the kernel is shared with the host; /workspace is a host folder without a quota; an engine that runs on
another machine cannot mount the workspace.
"""

import contextlib
import os
import secrets
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent.errors import SandboxError
from agent.sandbox import runner
from agent.sandbox.base import WORKSPACE, ExecResult, Heard, Limits, Output, SandboxSpec
from agent.sandbox.beneath import HostFiles, Root
from agent.sandbox.capture import HEAD_BYTES, CommandOutput
from agent.sandbox.docker_channel import Channel, ChannelClosed, Overdue
from agent.sandbox.engine import connect, endpoint, has_image
from agent.sandbox.environment import CUDA_BIN, SYSTEM_PATH, sandbox_env
from agent.sandbox.gpu import GpuAccess, Way, docker_access
from agent.sandbox.image import LABEL_PYTHON, image_name
from agent.sandbox.inside import read_inside, write_inside
from agent.sandbox.labels import owner_labels
from agent.sandbox.mounts import check_mounts, give_writable
from agent.sandbox.process import NOT_STARTED, TIMED_OUT, host_deadline, unusable

UID: Final = 10001
RUNNER: Final = "/opt/agent-runner.py"
START_TIMEOUT_S: Final = 60.0
REMOVE_TIMEOUT_S: Final = 20.0


def open_docker(
    spec: SandboxSpec, *, image: str = "", target: str = "cpu", python: str = "", gpu: Way = "auto"
) -> "DockerSandbox":
    """Start a container; `python` where the image's label is not to be asked, `gpu` how it gets the GPUs.

    Raises SandboxError within seconds where engine, image, a mount or that way to the GPUs is missing.
    """
    name = image or image_name(target)
    client = connect()
    try:
        _require_image(client, name, target)
        user = _user(client)
        check_mounts(spec, readable_by_others=os.getuid() == 0 and user[0] != 0)
        give_writable(spec, user)
        return DockerSandbox(client, _with_gpus(client, spec, gpu), image=name, user=user, python=python)
    except BaseException:
        client.close()
        raise


class DockerSandbox:
    """A running container; use open_docker."""

    kind = "docker"

    def __init__(self, client: Any, opened: "_Opened", *, image: str, user: tuple[int, int], python: str = "") -> None:
        spec = opened.spec
        self._client = client
        self._spec = spec
        self._image = image
        self._user = user
        self._dead: SandboxError | None = None
        self._gpu = opened.gpu
        self._python = python or (client.images.get(image).labels or {}).get(LABEL_PYTHON) or "python3"
        self._files = HostFiles(_roots(spec), WORKSPACE, user if os.getuid() == 0 else None)
        self._id, self._channel = _start(client, opened, image=image, user=user, python=self._python)
        self._remove = weakref.finalize(self, _remove, client, self._id, self._channel)
        try:
            self._channel.hello(timeout_s=START_TIMEOUT_S)
        except (ChannelClosed, Overdue) as error:
            dead = self._post_mortem(f"the sandbox did not start from image {image}")
            self.close()
            raise dead from error

    @property
    def python(self) -> str:
        return self._python

    @property
    def container_id(self) -> str:
        return self._id

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cwd: str | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        heard: Heard | None = None,
    ) -> ExecResult:
        return self._exec(argv, timeout_s=timeout_s, cwd=cwd, stdin=stdin, env=env, log=log, heard=heard)

    def read(self, path: str, *, limit: int) -> bytes:
        if self._files.covers(path):
            self._require_alive()
            return self._files.read(path, limit=limit)
        return read_inside(self._exec, path, limit=limit)

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        if self._files.covers(path):
            self._require_alive()
            self._files.write(path, data, mode=mode)
        else:
            write_inside(self._exec, path, data, mode=mode)

    def describe(self) -> str:
        limits = self._spec.limits
        return (
            f"docker: engine {endpoint(self._client)}, image {self._image}, user {self._user[0]}:{self._user[1]}, "
            f"no network, memory {limits.memory_bytes / 2**30:g} GB, {limits.pids} processes, read-only root"
            + (f", GPUs by {self._gpu.detail}" if self._gpu else "")
        )

    def close(self) -> None:
        self._dead = self._dead or SandboxError("the sandbox is closed")
        self._remove()

    def _exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cwd: str | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        head_bytes: int = HEAD_BYTES,
        heard: Heard | None = None,
    ) -> ExecResult:
        self._require_alive()
        if problem := unusable(argv):
            return ExecResult("exited", NOT_STARTED, Output(b"", b"", 0), Output(problem.encode(), b"", 0), 0.0)
        log_bytes = self._spec.limits.log_bytes
        with CommandOutput(log, log_bytes=log_bytes, head_bytes=head_bytes, heard=heard) as output:
            try:
                result = self._channel.run(
                    argv,
                    env=self._env() | dict(env or {}),
                    cwd=cwd or WORKSPACE,
                    stdin=stdin or b"",
                    timeout_s=timeout_s,
                    host_deadline_s=host_deadline(timeout_s),
                    output=output,
                )
            except ChannelClosed as error:
                raise self._died("the sandbox is gone: its container ended during a command") from error
            except Overdue as error:
                raise self._died("the sandbox does not answer: a command is stuck in it") from error
        return _exec_result(result, output)

    def _env(self) -> dict[str, str]:
        folder = str(Path(self._python).parent) + ":" if self._python.startswith("/") else ""
        path = f"{folder}{CUDA_BIN}:{SYSTEM_PATH}"
        return sandbox_env(self._spec.env, path=path, cpus=self._spec.limits.cpus)

    def _require_alive(self) -> None:
        if self._dead is not None:
            raise self._dead

    def _died(self, message: str) -> SandboxError:
        if self._dead is not None:
            # Another thread closed it.
            return self._dead
        self._dead = self._post_mortem(message)
        self._remove()
        return self._dead

    def _post_mortem(self, message: str) -> SandboxError:
        """What is known about the end, asked before the container is removed."""
        state = _final_state(self._client, self._id)
        printed = self._channel.errors.output().text().strip()
        facts = {key: state.get(key) for key in ("Status", "ExitCode", "OOMKilled", "Error")}
        known = [f"{key}: {value}" for key, value in facts.items() if value not in ("", None)]
        text = ", ".join(known) or "the engine no longer knows the container"
        return SandboxError(
            message,
            hint="the workspace is still there; start a new sandbox",
            oom=bool(state.get("OOMKilled")),
            post_mortem=f"{text}; last output of PID 1: {printed or 'none'}",
        )


def _exec_result(result: Mapping[str, Any], output: CommandOutput) -> ExecResult:
    code = int(result["code"])
    code = code if code >= 0 else 128 - code
    status: Any = "timeout" if result["timed_out"] else "oom" if result["oom"] and code != 0 else "exited"
    return ExecResult(
        status=status,
        exit_code=TIMED_OUT if status == "timeout" else code,
        stdout=output.stdout.output(),
        stderr=output.stderr.output(),
        duration_s=float(result["seconds"]),
        log=output.log,
    )


def _require_image(client: Any, name: str, target: str) -> None:
    if not has_image(client, name):
        ours = name == image_name(target)
        hint = f"agent image build --{target}" if ours else f"docker pull {name}, or leave sandbox.image empty"
        raise SandboxError(f"the image {name} is not on this machine", hint=hint)


def _user(client: Any) -> tuple[int, int]:
    """The host's own ids, so that the workspace stays the user's; another user's where the host runs as root."""
    if any("rootless" in option for option in client.info().get("SecurityOptions") or ()):
        # A rootless engine maps root inside to the user outside, and every other id to one that owns nothing.
        return 0, 0
    return (UID, UID) if os.getuid() == 0 else (os.getuid(), os.getgid())


def _roots(spec: SandboxSpec) -> tuple[Root, ...]:
    workspace = Root(WORKSPACE, spec.workspace, spec.workspace_read_only)
    return (workspace, *(Root(mount.target, mount.source, mount.read_only) for mount in spec.mounts))


@dataclass(frozen=True)
class _Opened:
    """What a container is made from, and how it gets the GPUs (None: not at all)."""

    spec: SandboxSpec
    gpu: GpuAccess | None


def _with_gpus(client: Any, spec: SandboxSpec, way: Way) -> _Opened:
    if spec.gpus != "all":
        return _Opened(spec, None)
    access = docker_access(way, client.info(), visible=spec.system)
    env = dict(spec.env)
    for name, value in access.env.items():
        env[name] = f"{env[name]}:{value}" if env.get(name) else value
    return _Opened(replace(spec, system=(*spec.system, *access.mounts), env=env), access)


def _start(client: Any, opened: _Opened, *, image: str, user: tuple[int, int], python: str) -> tuple[str, Channel]:
    import docker
    import requests

    api, spec = client.api, opened.spec
    created = ""
    try:
        gpus = opened.gpu.docker_options() if opened.gpu else {}
        created = api.create_container(
            image,
            [python, "-I", "-S", RUNNER],
            entrypoint="",
            name=f"cuda-agent-{secrets.token_hex(6)}",
            user=f"{user[0]}:{user[1]}",
            environment={"HOME": runner.HOME, "PATH": SYSTEM_PATH},
            working_dir=WORKSPACE,
            labels={**owner_labels(), **spec.labels},
            stdin_open=True,
            tty=False,
            host_config=api.create_host_config(**_profile(spec), **gpus),
        )["Id"]
        attached = api.attach_socket(created, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        channel = Channel(attached)
        api.start(created)
        return created, channel
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        if created:
            with contextlib.suppress(docker.errors.DockerException, requests.exceptions.RequestException):
                api.remove_container(created, force=True, v=True)
        text = " ".join(str(error).split())[:400]
        raise SandboxError(f"the engine cannot start a sandbox: {text}", hint="agent doctor") from error


def _profile(spec: SandboxSpec) -> dict[str, Any]:
    from docker.types import LogConfig, Mount, Ulimit

    limits = spec.limits
    binds = [
        Mount(WORKSPACE, str(spec.workspace.resolve()), type="bind", read_only=spec.workspace_read_only),
        Mount(RUNNER, str(Path(runner.__file__).resolve()), type="bind", read_only=True),
        *(
            Mount(m.target, str(m.source.resolve()), type="bind", read_only=m.read_only)
            for m in (*spec.system, *spec.mounts)
        ),
    ]
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": True,
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={_tmp_bytes(limits)}"},
        "mounts": binds,
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,
        "nano_cpus": int(limits.cpus * 1e9) if limits.cpus else None,
        "pids_limit": limits.pids,
        "shm_size": min(limits.shm_bytes, limits.memory_bytes // 4),
        # Limits are only lowered: an engine without CAP_SYS_RESOURCE refuses to raise one.
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "ipc_mode": "private",
        # Everything that a command prints passes through here; the host keeps it, the engine must not keep it again.
        "log_config": LogConfig(type="none"),
    }


def _tmp_bytes(limits: Limits) -> int:
    # Its pages count as memory: a full /tmp must leave enough for the command that empties it.
    return min(limits.tmp_bytes, limits.memory_bytes // 2)


def _final_state(client: Any, container: str) -> dict[str, Any]:
    """State of a container that is ending or has ended; empty when the engine has forgotten it."""
    import docker
    import requests

    with contextlib.suppress(docker.errors.DockerException, requests.exceptions.RequestException, OSError):
        with contextlib.suppress(requests.exceptions.RequestException, docker.errors.APIError):
            client.api.wait(container, timeout=3)
        return dict(client.api.inspect_container(container)["State"])
    return {}


def _remove(client: Any, container: str, channel: Channel) -> None:
    """End the container; always returns within REMOVE_TIMEOUT_S, also when the engine hangs."""
    channel.close()
    worker = threading.Thread(target=_remove_now, args=(client, container), daemon=True)
    try:
        worker.start()
    except RuntimeError:
        # The interpreter is shutting down and starts no more threads.
        _remove_now(client, container)
        return
    worker.join(REMOVE_TIMEOUT_S)


def _remove_now(client: Any, container: str) -> None:
    import docker
    import requests

    with contextlib.suppress(docker.errors.DockerException, requests.exceptions.RequestException, OSError):
        client.api.remove_container(container, force=True, v=True)
    client.close()
