"""The connection to a Docker engine: found, asked whether it answers, and named for a person."""

import socket
from typing import Any, Final

from agent.config import environ
from agent.errors import SandboxError

API_TIMEOUT_S: Final = 60.0
PING_TIMEOUT_S: Final = 5.0
DEFAULT_URL: Final = "unix:///var/run/docker.sock"
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
        _try_socket()
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
    """Whether the engine holds the image; never pulls. Raises SandboxError where the engine cannot say."""
    import docker
    import requests

    try:
        client.images.get(name)
    except (docker.errors.APIError, requests.exceptions.RequestException, OSError) as error:
        # 400: the name is none that an image can have.
        if isinstance(error, docker.errors.APIError) and error.status_code in (400, 404):
            return False
        raise SandboxError(f"the Docker engine cannot be asked for {name}: {_brief(error)}") from error
    return True


def _try_socket() -> None:
    """Raise OSError where nothing listens; docker-py leaves an unclosed socket behind when it finds that out itself."""
    from docker.context import ContextAPI
    from docker.utils import kwargs_from_env

    env = environ()
    chosen = kwargs_from_env(environment=env).get("base_url")
    url = str(chosen or ContextAPI.kwargs_from_context(environment=env).get("base_url") or DEFAULT_URL)
    scheme, _, path = url.partition("://")
    if scheme.endswith("unix"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PING_TIMEOUT_S)
            probe.connect(f"/{path.lstrip('/')}")


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
