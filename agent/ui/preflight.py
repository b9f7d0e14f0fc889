"""Quick checks before a run folder exists and minutes go into preparing: the sandbox' engine, the model's server."""

import contextlib
from typing import Final

from agent.backends.base import Backend
from agent.backends.local import LocalBackend
from agent.backends.openai_api import OpenAIBackend
from agent.backends.presets import LOCAL, names_a_server, resolve
from agent.config import BackendConfig, SandboxConfig
from agent.errors import BackendError, ConfigError, SandboxError
from agent.judging.target import NVIDIA_CONTROL
from agent.judging.tool_runs import Target
from agent.sandbox.engine import connect, has_image
from agent.sandbox.image import image_name
from agent.sandbox.unconfined import CONSENT

_REFUSED_KEY: Final = "refused the key"


def check_target(target: Target) -> None:
    """Raises ConfigError for a target on which every verification would end without a verdict."""
    if target == "cuda" and not NVIDIA_CONTROL.exists():
        raise ConfigError("target cuda needs an NVIDIA GPU, and this machine shows none", hint="--target cpu")


def check_sandbox(config: SandboxConfig, target: Target) -> None:
    """For a pinned kind. Raises ConfigError where consent is missing, SandboxError where an engine or its image is."""
    if config.kind == "none" and not config.i_understand:
        message = "--sandbox none runs model-written code on this machine without protection"
        raise ConfigError(message, hint=f"add {CONSENT}")
    if config.kind != "docker":
        return
    name = config.image or image_name(target)
    client = connect()
    try:
        if not has_image(client, name):
            hint = f"docker pull {name}" if config.image else f"agent image build --{target}"
            raise SandboxError(f"the Docker engine has no image {name}", hint=hint)
    finally:
        client.close()


def check_script(backend: Backend, target: Target) -> None:
    """Raises ConfigError where the turns to be replayed were written for another target: all of them would fail."""
    written = backend.describe().get("target")
    if written in ("cpu", "cuda") and written != target:
        where = "on a machine with an NVIDIA GPU" if written == "cuda" else "with --target cpu"
        message = (
            f"{backend.name.removeprefix('replay:')} holds turns for target {written}, and this run is for {target}"
        )
        raise ConfigError(message, hint=f"replay it {where}; for kernels of one's own: --backend builtin, --model NAME")


def check_server(config: BackendConfig) -> int:
    """The window in tokens that the server tells for the model; 0 where it tells none, or one is configured.

    Raises BackendError when nobody answers at the address, or when the key is refused. Everything else is left to the
    first turn: a server need not list its models, and a key need not be allowed to. A local model is loaded once, so
    that one that cannot be says so now.
    """
    config = resolve(config)
    if config.name == LOCAL:
        with contextlib.closing(LocalBackend(config)) as local:
            local.start()
    if not names_a_server(config):
        return 0
    backend = OpenAIBackend(config)
    try:
        told = backend.served().get(config.model, 0)
    except BackendError as error:
        if error.kind == "unreachable" or (error.kind == "auth" and _REFUSED_KEY in error.message):
            raise
        return 0
    finally:
        backend.close()
    return 0 if config.context_tokens else told
