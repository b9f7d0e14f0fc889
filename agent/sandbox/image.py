"""The sandbox image: built from sandbox_image/Dockerfile with the engine's classic builder, listed, removed.

Covers: a build context made of the Dockerfile, a folder of wheels and a CA bundle and nothing else (no file of the
project or of the user gets in); certificates and wheels do not stay in the image. Not covered: what the base image
holds, and what the package index serves; torch, ninja and numpy are pinned by version, not by hash.
"""

import contextlib
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal

from agent.assets import asset
from agent.config import environ
from agent.errors import ConfigError, SandboxError
from agent.sandbox.engine import connect

Target = Literal["cpu", "cuda"]
REPOSITORY: Final = "cuda-agent-sandbox"
LABEL_RECIPE: Final = "org.cuda-agent.recipe"
LABEL_TARGET: Final = "org.cuda-agent.target"
LABEL_BASE: Final = "org.cuda-agent.base"
LABEL_STAGE: Final = "org.cuda-agent.stage"
LABEL_PYTHON: Final = "org.cuda-agent.python"
DEFAULT_BASE: Final[Mapping[str, str]] = {
    "cpu": "debian:bookworm-slim",
    "cuda": "nvidia/cuda:13.0.1-devel-ubuntu24.04",
}
FORWARDED: Final = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class ImageInfo:
    """One image of ours; `current` says whether it was built from the Dockerfile of this installation."""

    id: str
    name: str
    target: str
    base_image: str
    size_bytes: int
    created: str
    current: bool


def image_name(target: str) -> str:
    return f"{REPOSITORY}:{target}"


def recipe_hash(target: str, *, base_image: str | None = None) -> str:
    """What decides whether an image is up to date: the Dockerfile and the base image's name."""
    text = (asset("sandbox_image") / "Dockerfile").read_bytes()
    base = base_image or DEFAULT_BASE[target]
    return hashlib.sha256(b"\0".join((text, base.encode(), target.encode()))).hexdigest()[:16]


def is_current(target: str, *, base_image: str | None = None) -> bool:
    """Whether the engine holds the image that `build` would make."""
    base = base_image or DEFAULT_BASE[target]
    return any(image.name == image_name(target) and image.base_image == base and image.current for image in images())


def build(
    target: Target,
    *,
    base_image: str | None = None,
    wheels: Path | None = None,
    ca_bundle: Path | None = None,
    offline: bool = False,
    network: str | None = None,
    build_args: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> str:
    """Build and tag the image; returns its id. `on_line` gets the build log line by line.

    `wheels` is a folder that pip looks into first; `offline` forbids pip to ask an index at all. `network="host"` lets
    the build use the host's network, as proxies on a loopback address need. PIP_INDEX_URL and proxies are passed on.
    Raises ConfigError for arguments that cannot work and SandboxError when the engine or a build step fails.
    """
    base = base_image or DEFAULT_BASE[target]
    _check_inputs(wheels, ca_bundle, offline)
    args = _forwarded() | {"BASE_IMAGE": base, "PIP_OPTIONS": "--no-index" if offline else ""} | dict(build_args or {})
    client = connect(timeout_s=3600.0)
    try:
        with tempfile.TemporaryFile() as context:
            _write_context(context, wheels=wheels, ca_bundle=ca_bundle)
            context.seek(0)
            stream = client.api.build(
                fileobj=context,
                custom_context=True,
                tag=image_name(target),
                buildargs=args,
                labels=_labels(target, base),
                network_mode=network,
                pull=False,
                rm=True,
                forcerm=True,
                decode=True,
            )
            _follow(stream, on_line or (lambda line: None))
        _drop_leftovers(client)
        return str(client.images.get(image_name(target)).id)
    except _engine_errors() as error:
        raise SandboxError(f"building {image_name(target)} failed: {error}", hint="check `docker info`") from error
    finally:
        client.close()


def images() -> tuple[ImageInfo, ...]:
    """Images that carry our label, newest first."""
    client = connect()
    try:
        found = client.images.list(filters={"label": LABEL_RECIPE})
        return tuple(_info(image) for image in found)
    finally:
        client.close()


def remove(name: str, *, force: bool = False) -> None:
    """Remove one of our images by name or id. Raises ConfigError for anything that is not ours."""
    client = connect()
    try:
        if LABEL_RECIPE not in (client.images.get(name).labels or {}):
            raise ConfigError(f"{name} was not built by `agent image build`", hint="docker image rm removes any image")
        client.images.remove(name, force=force)
    except _engine_errors() as error:
        raise SandboxError(f"cannot remove {name}: {error}", hint="agent image ls; agent sandbox ls") from error
    finally:
        client.close()


def _check_inputs(wheels: Path | None, ca_bundle: Path | None, offline: bool) -> None:
    if wheels is not None and not wheels.is_dir():
        raise ConfigError(f"no wheel folder at {wheels}")
    if ca_bundle is not None and not ca_bundle.is_file():
        raise ConfigError(f"no CA bundle at {ca_bundle}")
    if offline and (wheels is None or not any(wheels.glob("torch-*.whl"))):
        raise ConfigError("an offline build needs a wheel folder that holds torch", hint="pip download torch -d DIR")


def _forwarded() -> dict[str, str]:
    env = environ()
    chosen = {name: env[name] for name in FORWARDED if env.get(name)}
    # A file:// index lies on the host, where the build cannot see it.
    return {name: value for name, value in chosen.items() if not value.startswith("file:")}


def _write_context(out: IO[bytes], *, wheels: Path | None, ca_bundle: Path | None) -> None:
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(asset("sandbox_image") / "Dockerfile", arcname="Dockerfile")
        for folder in ("wheels", "ca"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
            # COPY refuses a folder without files on some engines.
            tar.addfile(tarfile.TarInfo(f"{folder}/.keep"), io.BytesIO())
        for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
            tar.add(wheel, arcname=f"wheels/{wheel.name}")
        if ca_bundle:
            tar.add(ca_bundle.resolve(), arcname="ca/bundle.pem")


def _follow(stream: Iterator[dict[str, Any]], on_line: Callable[[str], None]) -> None:
    last = ""
    for record in stream:
        for line in str(record.get("stream") or record.get("status") or "").splitlines():
            if line.strip():
                last = line.strip()
                on_line(line.rstrip())
        if error := record.get("error"):
            hint = "see the build log above; without a network give a wheel folder, and a base image that exists here"
            raise SandboxError(f"building the image failed: {str(error).strip()} (after: {last[:160]})", hint=hint)


def _drop_leftovers(client: Any) -> None:
    for label in (LABEL_STAGE, LABEL_RECIPE):
        for image in client.images.list(filters={"label": label, "dangling": True}):
            # What another build or a running sandbox uses stays; the next build drops it.
            with contextlib.suppress(*_engine_errors()):
                client.images.remove(image.id)


def _labels(target: str, base: str) -> dict[str, str]:
    return {LABEL_RECIPE: recipe_hash(target, base_image=base), LABEL_TARGET: target, LABEL_BASE: base}


def _info(image: Any) -> ImageInfo:
    labels = image.labels or {}
    target, base = labels.get(LABEL_TARGET, ""), labels.get(LABEL_BASE, "")
    return ImageInfo(
        id=image.id,
        name=(image.tags or [""])[0],
        target=target,
        base_image=base,
        size_bytes=int(image.attrs.get("Size", 0)),
        created=str(image.attrs.get("Created", "")),
        current=target in DEFAULT_BASE and labels.get(LABEL_RECIPE) == recipe_hash(target, base_image=base),
    )


def _engine_errors() -> tuple[type[Exception], ...]:
    import docker
    import requests

    return docker.errors.DockerException, requests.exceptions.RequestException
