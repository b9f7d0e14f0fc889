"""The connection to a Docker engine: found, asked whether it answers, and named for a person."""

from typing import Any, Final

from agent.errors import SandboxError

API_TIMEOUT_S: Final = 60.0
PING_TIMEOUT_S: Final = 5.0
NO_ENGINE_HINT: Final = (
    "start the engine (systemctl start docker), check `docker info`, or use --sandbox bubblewrap, which needs none"
)


def connect(*, timeout_s: float = API_TIMEOUT_S) -> Any:
    """A docker-py client whose engine has answered a ping. Raises SandboxError within about PING_TIMEOUT_S.

    Follows DOCKER_HOST and the active Docker context like the docker command does; `endpoint` says which one it is.
    """
    import docker
    import requests

    try:
        client = docker.from_env(timeout=PING_TIMEOUT_S)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise SandboxError(f"no Docker engine answers: {_brief(error)}", hint=NO_ENGINE_HINT) from error
    try:
        client.ping()
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        client.close()
        raise SandboxError(f"no Docker engine answers: {_brief(error)}", hint=NO_ENGINE_HINT) from error
    client.api.timeout = timeout_s
    return client


def endpoint(client: Any) -> str:
    """Where the engine is, for instance unix:///var/run/docker.sock: an active context may point elsewhere."""
    adapter = getattr(client.api, "_custom_adapter", None)
    if path := getattr(adapter, "socket_path", ""):
        return f"unix://{path}"
    return str(getattr(adapter, "ssh_host", "") or client.api.base_url)


def has_image(client: Any, name: str) -> bool:
    """Whether the engine holds the image; never pulls."""
    import docker

    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
