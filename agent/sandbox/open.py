"""Which kind of sandbox is used here, and how one is opened."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from agent.config import SandboxConfig, environ
from agent.errors import SandboxError
from agent.sandbox.base import Mount, Sandbox, SandboxSpec
from agent.sandbox.bubblewrap import INSTALL_HINT, open_bubblewrap
from agent.sandbox.docker import RUNNER, open_docker
from agent.sandbox.engine import connect, endpoint, has_image
from agent.sandbox.image import image_name
from agent.sandbox.mounts import for_all
from agent.sandbox.orphans import sweep
from agent.sandbox.scratch import trial_folder
from agent.sandbox.unconfined import open_unconfined

# A try of each kind takes a tenth of a second and its answer is asked for often; only what worked is remembered.
_chosen: Final[dict[tuple[SandboxConfig, str, str | None], str]] = {}


@dataclass(frozen=True)
class KindReport:
    """Whether a kind works here; `detail` says where, or why not."""

    kind: str
    usable: bool
    detail: str


def open_sandbox(config: SandboxConfig, spec: SandboxSpec, *, target: str = "cpu", kind: str | None = None) -> Sandbox:
    """Open a sandbox of `kind`, or of the kind that the configuration leads to. Raises SandboxError, ConfigError."""
    chosen = kind or choose_kind(config, target=target)
    _sweep_once(chosen)
    spec = with_machine(config, spec)
    if chosen == "docker":
        return open_docker(spec, image=config.image, target=target, python=config.image_python, gpu=config.gpu)
    if chosen == "bubblewrap":
        return open_bubblewrap(spec, python=config.python)
    return open_unconfined(spec, python=config.python, consent=config.i_understand)


def with_machine(config: SandboxConfig, spec: SandboxSpec) -> SandboxSpec:
    """`spec` with the configuration's own mounts and variables; what the caller gave goes before them."""
    taken = [PurePosixPath(mount.target) for mount in spec.mounts] + [PurePosixPath(RUNNER)]
    system = tuple(mount for text in config.mounts for mount in _apart(configured_mount(text), taken))
    env = dict(entry.split("=", 1) for entry in config.env)
    return replace(spec, system=(*system, *spec.system), env={**env, **spec.env})


def configured_mount(text: str) -> Mount:
    """SOURCE or SOURCE:TARGET."""
    source, _, target = text.partition(":")
    return Mount(Path(source), target or source)


def _apart(mount: Mount, taken: Sequence[PurePosixPath]) -> list[Mount]:
    """`mount`, or its entries one by one where something else is mounted below it: read-only takes no new folder.

    Of the entries those are left out that not everybody may read.
    """
    target = PurePosixPath(mount.target)
    if not mount.source.is_dir() or not any(path.is_relative_to(target) for path in taken):
        return [mount]
    inner = [Mount(path, f"{target}/{path.name}") for path in sorted(mount.source.iterdir())]
    return [one for one in inner if PurePosixPath(one.target) not in taken and for_all(one.source)]


def choose_kind(config: SandboxConfig, *, target: str = "cpu") -> str:
    """The configured kind; for auto docker where an engine answers and has the image, else bubblewrap.

    Raises SandboxError that says what to install when neither works.
    """
    if config.kind != "auto":
        return config.kind
    known = (config, target, environ().get("DOCKER_HOST"))
    if known not in _chosen:
        _chosen[known] = _choose(config, target)
    return _chosen[known]


def pinned(config: SandboxConfig, *, target: str) -> SandboxConfig:
    """With the kind that `auto` leads to here: an engine that goes away later must not lead to another kind."""
    return config.model_copy(update={"kind": choose_kind(config, target=target)})


def _choose(config: SandboxConfig, target: str) -> str:
    docker = check_docker(config, target=target)
    if docker.usable:
        return "docker"
    bubblewrap = check_bubblewrap(config)
    if bubblewrap.usable:
        return "bubblewrap"
    raise SandboxError(
        f"no sandbox works here; docker: {docker.detail}; bubblewrap: {bubblewrap.detail}",
        hint=f"start a Docker engine and run `agent image build --{target}`, or {INSTALL_HINT}",
    )


def check_docker(config: SandboxConfig, *, target: str = "cpu") -> KindReport:
    try:
        client = connect()
    except SandboxError as error:
        return KindReport("docker", False, error.message)
    name = config.image or image_name(target)
    try:
        if has_image(client, name):
            return KindReport("docker", True, f"{endpoint(client)}, image {name}")
        return KindReport("docker", False, f"{endpoint(client)} answers but has no image {name}")
    finally:
        client.close()


def check_bubblewrap(config: SandboxConfig) -> KindReport:
    """Opens one and runs a command in it: only a try shows what a kernel permits."""
    try:
        with trial_folder() as folder:
            spec = with_machine(config, SandboxSpec(workspace=folder))
            sandbox = open_bubblewrap(spec, python=config.python)
            try:
                return KindReport("bubblewrap", True, sandbox.describe())
            finally:
                sandbox.close()
    except SandboxError as error:
        return KindReport("bubblewrap", False, str(error))


@cache
def _sweep_once(kind: str) -> None:
    """Once per process and kind, because asking the engine takes time."""
    sweep(kind)
