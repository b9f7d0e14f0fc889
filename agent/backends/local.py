"""backend local: a GGUF file on this machine, behind a llama.cpp server that this process starts and ends."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.backends.base import Backend, Message, Reply, ToolSchema
from agent.backends.gguf import read_gguf
from agent.backends.local_server import SERVERS, LocalServer, Wanted
from agent.backends.openai_api import OpenAIBackend
from agent.backends.presets import resolve
from agent.backends.protocols import with_protocol
from agent.backends.retry import CancelHook, ChatCancelled
from agent.config import BackendConfig, expanded
from agent.errors import BackendError, ConfigError

MOST_RESTARTS: Final = 2
SMALLEST_CONTEXT: Final = 1024
SLOWEST_S_PER_TOKEN: Final = 2.0


class LocalBackend:
    """The server is started by the first turn. One that dies is started again, at most MOST_RESTARTS times in a run."""

    notice = ""

    def __init__(self, config: BackendConfig, *, cancelled: CancelHook | None = None) -> None:
        """Raises ConfigError for a file that is no whole GGUF, or a window that the model was not trained for."""
        config = resolve(config)
        if not config.model:
            raise ConfigError("no model is set", hint="--backend local --model PATH.gguf")
        self.gguf = read_gguf(expanded(Path(config.model)))
        self.config = config.model_copy(update={"context_tokens": _context(config, self.gguf.context_tokens)})
        self.cancelled = cancelled
        self.restarts = 0
        self._closed = False
        self._wanted = Wanted.of(
            config.local, model=self.gguf.path.absolute(), context_tokens=self.config.context_tokens
        )
        self._server: LocalServer | None = None
        self._inner: Backend | None = None

    @classmethod
    def from_config(cls, config: BackendConfig) -> "LocalBackend":
        return cls(config)

    @property
    def name(self) -> str:
        return f"local:{self.gguf.path.name}"

    def describe(self) -> Mapping[str, Any]:
        about = {
            "kind": "local",
            "model": self.gguf.path.name,
            "architecture": self.gguf.architecture,
            "context_tokens": self.config.context_tokens,
            "tool_protocol": self.config.tool_protocol,
            "temperature": self.config.temperature,
            "top_p": self.config.top_p,
            "seed": self.config.seed,
            "max_output_tokens": self.config.max_output_tokens,
            "restarts": self.restarts,
        }
        return about if self._inner is None else {**self._inner.describe(), **about}

    def chat(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Reply:
        """One turn. Raises BackendError (kind server) when the server died too often, and what its client raises."""
        while True:
            try:
                # The server knows the model by an alias.
                return self._connected().chat(messages, tools).model_copy(update={"model": self.gguf.path.name})
            except (ChatCancelled, BackendError):
                if self._server is None or not self._server.dead:
                    raise
                self._bury()

    def close(self) -> None:
        """A turn that is still being waited for somewhere starts no server any more."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        inner, self._inner = self._inner, None
        server, self._server = self._server, None
        if inner is not None:
            inner.close()
        if server is not None:
            SERVERS.release(self._wanted)

    def start(self) -> LocalServer:
        """The running server, started where there is none. Raises as LocalServer does, ChatCancelled after close."""
        if self._closed:
            raise ChatCancelled
        if self._server is None:
            self._server = SERVERS.acquire(self._wanted, cancelled=self.cancelled)
        return self._server

    def _connected(self) -> Backend:
        server = self.start()
        if self._inner is None:
            asked = self.config.model_copy(
                update={"model": "local", "base_url": server.base_url, "timeout_s": self._timeout_s()}
            )
            # The client must not wait minutes for a server that is known to be gone.
            client = OpenAIBackend(asked, cancelled=self._hook(server))
            self._inner = with_protocol(client, asked)
        return self._inner

    def _timeout_s(self) -> float:
        """A machine without a GPU may need many minutes for a long reply; the episode's own limits still hold."""
        longest = self.config.max_output_tokens or self.config.context_tokens
        return max(self.config.timeout_s, SLOWEST_S_PER_TOKEN * longest)

    def _hook(self, server: LocalServer) -> Callable[[], bool]:
        return lambda: server.dead or (self.cancelled is not None and self.cancelled())

    def _bury(self) -> None:
        """Raises BackendError when there were too many, ChatCancelled when a person asked to leave meanwhile."""
        assert self._server is not None
        ended = self._server.post_mortem()
        self._let_go()
        if self.cancelled is not None and self.cancelled():
            raise ChatCancelled
        if self.restarts >= MOST_RESTARTS:
            hint = "a smaller backend.context_tokens or model; `agent optimize --resume RUN` goes on"
            raise BackendError(f"{ended}, for the {self.restarts + 1}. time", kind="server", hint=hint)
        self.restarts += 1


def _context(config: BackendConfig, trained: int) -> int:
    """The window asked for; the preset's where none was, and the model has as much."""
    asked = config.context_tokens
    if asked < SMALLEST_CONTEXT:
        raise ConfigError(f"backend.context_tokens={asked} is too short", hint=f"{SMALLEST_CONTEXT} at least")
    if trained and asked > trained:
        hint = f"backend.context_tokens={trained} at most"
        raise ConfigError(f"the model was trained for {trained} tokens of context, not {asked}", hint=hint)
    return asked
