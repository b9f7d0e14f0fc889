"""How a sandbox gets the GPUs: by the NVIDIA toolkit, by CDI, or as device nodes with the driver's files.

Covers: the choice, what the engine is asked for, and which of the driver's libraries are shown read-only. Not covered:
whether CUDA then works inside; `agent doctor` tries that. All GPUs of the machine are shown; CUDA_VISIBLE_DEVICES says
which one a command uses.
"""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from agent.errors import SandboxError
from agent.sandbox.base import Mount

Way = Literal["auto", "toolkit", "cdi", "nodes"]
CDI_ALL: Final = "nvidia.com/gpu=all"
HOOK: Final = "/usr/bin/nvidia-container-runtime-hook"
DRIVER: Final = "/opt/agent-driver"
# What CUDA programs, nvidia-smi and the profilers load of the driver; everything else of it is graphics.
LIBRARIES: Final = (
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-nvvm70.so.4",
    "libnvidia-ptxjitcompiler.so.1",
)
VERSIONED: Final = ("libnvidia-gpucomp.so", "libnvidia-tileiras.so")
USUAL_FOLDERS: Final = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
NO_NODES: Final = "/dev has no nvidia devices"


@dataclass(frozen=True)
class GpuAccess:
    """What a sandbox is started with. `detail` names the way for a person."""

    way: Literal["toolkit", "cdi", "nodes"]
    detail: str
    nodes: tuple[Path, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def docker_options(self) -> dict[str, Any]:
        """Arguments of docker-py's create_host_config."""
        from docker.types import DeviceRequest

        if self.way == "toolkit":
            return {"device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])]}
        if self.way == "cdi":
            return {"device_requests": [DeviceRequest(driver="cdi", device_ids=[CDI_ALL])]}
        return {"devices": [f"{node}:{node}:rw" for node in self.nodes]}


def docker_access(way: Way, engine: Mapping[str, Any], *, visible: Sequence[Mount] = ()) -> GpuAccess:
    """For a container of the engine whose /info is `engine`; `visible` are mounts that it has anyway.

    auto takes the toolkit, then CDI, then the nodes. Raises SandboxError where the way cannot work.
    """
    chosen = _first_way(engine) if way == "auto" else way
    if chosen == "toolkit":
        if not _has_toolkit(engine):
            hint = "install nvidia-container-toolkit, run `nvidia-ctk runtime configure` and restart the engine"
            raise SandboxError("the engine knows no NVIDIA runtime (sandbox.gpu is toolkit)", hint=hint)
        return GpuAccess("toolkit", "NVIDIA container toolkit (device request)")
    if chosen == "cdi":
        if not _has_cdi(engine):
            hint = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; Docker 25 or newer"
            raise SandboxError(f"the engine knows no CDI device {CDI_ALL} (sandbox.gpu is cdi)", hint=hint)
        return GpuAccess("cdi", f"CDI device {CDI_ALL}")
    return node_access(visible=[Path(mount.source) for mount in visible])


def node_access(*, visible: Iterable[Path], dev: Path = Path("/dev")) -> GpuAccess:
    """The device nodes, and of the driver's libraries those that do not lie below one of the `visible` folders."""
    nodes = device_nodes(dev)
    if not any(re.fullmatch(r"nvidia\d+", node.name) for node in nodes):
        hint = "install the NVIDIA driver (nvidia-smi must list a GPU), or use --target cpu"
        raise SandboxError(f"no GPU can be given to the sandbox: {NO_NODES}", hint=hint)
    shown = tuple(visible)
    files = [path for path in driver_files() if not any(path.resolve().is_relative_to(folder) for folder in shown)]
    mounts = tuple(Mount(path.resolve(), f"{DRIVER}/{path.name}") for path in files)
    names = ", ".join(node.name for node in nodes)
    detail = f"device nodes {names}; " + (f"{len(mounts)} driver files at {DRIVER}" if mounts else "driver visible")
    return GpuAccess("nodes", detail, nodes, mounts, {"LD_LIBRARY_PATH": DRIVER} if mounts else {})


def device_nodes(dev: Path = Path("/dev")) -> tuple[Path, ...]:
    return tuple(node for node in sorted(dev.glob("nvidia*")) if node.is_char_device())


def driver_files() -> list[Path]:
    """The driver's libraries on this machine, by the name under which they are loaded."""
    found: dict[str, Path] = {}
    for path in map(Path, (*_linker_cache(), *_usual_files())):
        if path.name in LIBRARIES or any(re.fullmatch(rf"{re.escape(name)}\.[\d.]+", path.name) for name in VERSIONED):
            found.setdefault(path.name, path)
    return [found[name] for name in sorted(found)]


def _linker_cache() -> list[str]:
    try:
        done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line for line in done.stdout.splitlines() if "=>" in line and "libc6," in line and "-64" in line]
    return [line.split("=>")[1].strip() for line in lines]


def _usual_files() -> list[str]:
    from agent.config import environ  # late: without GPUs this module needs the standard library only

    folders = [folder for folder in environ().get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    found = [Path(folder) for folder in (*folders, *USUAL_FOLDERS) if Path(folder).is_dir()]
    return [str(file) for folder in found for file in sorted(folder.glob("lib*.so*"))]


def _first_way(engine: Mapping[str, Any]) -> Way:
    if _has_toolkit(engine):
        return "toolkit"
    return "cdi" if _has_cdi(engine) else "nodes"


def _has_toolkit(engine: Mapping[str, Any]) -> bool:
    return "nvidia" in (engine.get("Runtimes") or {}) or Path(HOOK).exists()


def _has_cdi(engine: Mapping[str, Any]) -> bool:
    """Newer engines list what they discovered; older ones only say where they look."""
    discovered = engine.get("DiscoveredDevices") or []
    if any(isinstance(entry, dict) and entry.get("ID") == CDI_ALL for entry in discovered):
        return True
    return any(_specifies_gpus(Path(folder)) for folder in engine.get("CDISpecDirs") or ())


def _specifies_gpus(folder: Path) -> bool:
    files = [file for file in sorted(folder.glob("*")) if file.suffix in (".yaml", ".json")] if folder.is_dir() else []
    return any("nvidia.com/gpu" in _text(file) for file in files)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")[: 1 << 20]
    except OSError:
        return ""
