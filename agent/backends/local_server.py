"""A llama.cpp server of our own on loopback: started for a GGUF file, shared by what runs at once, ended with us.

Covers: a free port, a port that is taken, a model that cannot be loaded, a server that dies, a driver that is killed
(keeper.py). Does not cover other users of this machine: whoever may open a loopback connection may ask the server.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.backends.retry import ChatCancelled
from agent.config import LocalConfig
from agent.errors import BackendError, ConfigError, install

LLAMA_CPP: Final = (
    *(sys.executable, "-m", "llama_cpp.server", "--model", "{model}", "--model_alias", "local"),
    *("--host", "127.0.0.1", "--port", "{port}", "--n_ctx", "{context}", "--n_threads", "{threads}"),
    *("--n_threads_batch", "{threads}", "--n_gpu_layers", "{gpu_layers}", "--interrupt_requests", "false"),
)
_PORT_TRIES: Final = 3
_POLL_S: Final = 0.1
_TAIL_BYTES: Final = 64_000
_IN_USE: Final = ("address already in use", "errno 98", "couldn't bind", "could not bind")


@dataclass(frozen=True)
class Wanted:
    """What makes two servers the same."""

    model: Path
    context_tokens: int
    command: tuple[str, ...]
    port: int
    threads: int
    gpu_layers: int
    start_timeout_s: float

    @classmethod
    def of(cls, config: LocalConfig, *, model: Path, context_tokens: int) -> "Wanted":
        threads = config.threads or os.cpu_count() or 1
        command = tuple(config.command) or LLAMA_CPP
        timeout_s = config.start_timeout_s
        return cls(model, context_tokens, command, config.port, threads, config.gpu_layers, timeout_s)

    def command_line(self, port: int) -> list[str]:
        """Raises ConfigError for a placeholder that is none of ours."""
        values = {
            "model": str(self.model),
            "port": str(port),
            "context": str(self.context_tokens),
            "threads": str(self.threads),
            "gpu_layers": str(self.gpu_layers),
        }
        try:
            return [part.format(**values) for part in self.command]
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(f"{{{name}}}" for name in values)
            raise ConfigError(f"backend.local.command cannot be filled in: {error!r}", hint=f"known: {known}") from None


class LocalServer:
    """One running server. `close` ends it; so does the end of this process."""

    def __init__(self, wanted: Wanted, *, cancelled: Callable[[], bool] | None = None) -> None:
        """Returns when it answers. Raises ConfigError, BackendError, ChatCancelled; then nothing runs any more."""
        self.wanted = wanted
        # Without a name: nothing is left of it, however this process ends.
        self._log = tempfile.TemporaryFile(prefix="agent-llama-")  # noqa: SIM115 - lives as long as the server
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start(cancelled or (lambda: False))
        except BaseException:
            self.close()
            raise

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int:
        """Of the keeper, whose child the server is."""
        assert self._process is not None
        return self._process.pid

    @property
    def dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def post_mortem(self) -> str:
        """How it ended and what it said last, in one line."""
        code = self._process.poll() if self._process is not None else None
        how = "is gone" if code is None else f"was ended by signal {code - 128}" if code > 128 else f"ended with {code}"
        last = next((line.strip() for line in reversed(self._said().splitlines()) if line.strip()), "")
        return f"the local server {how}" + (f"; it said: {last[:300]}" if last else "")

    def close(self) -> None:
        """Safe to repeat."""
        self._end()
        self._log.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # the keeper kills the server when this closes
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, cancelled: Callable[[], bool]) -> None:
        for attempt in range(1, _PORT_TRIES + 1):
            self.port = _port(self.wanted.port)
            self._launch()
            try:
                self._await_answer(cancelled)
                return
            except _PortTaken:
                self._end()
                if self.wanted.port or attempt == _PORT_TRIES:
                    raise _port_in_use(self.port) from None

    def _launch(self) -> None:
        keeper = Path(__file__).with_name("keeper.py")
        command = [sys.executable, "-I", str(keeper), *self.wanted.command_line(self.port)]
        self._log.truncate(0)
        # A session of its own: ^C in the terminal must not reach the server before the episode is wound up.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def _await_answer(self, cancelled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.wanted.start_timeout_s
        while not self._answers():
            if self.dead:
                raise self._failure()
            if cancelled():
                raise ChatCancelled
            if time.monotonic() > deadline:
                message = f"the local server did not answer within {self.wanted.start_timeout_s:g} s"
                raise BackendError(message, kind="timeout", hint="raise backend.local.start_timeout_s")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.base_url}/models", timeout=5) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def _failure(self) -> Exception:
        """Why a server that was just started is gone already."""
        said, model = self._said(), self.wanted.model
        lower = said.lower()
        if any(words in lower for words in _IN_USE):
            return _PortTaken()
        if "no module named" in lower and "llama_cpp" in lower:
            hint = f"{install('local-llm')}; or set backend.local.command"
            return ConfigError("llama-cpp-python with its server is not installed here", hint=hint)
        if "unknown model architecture" in lower:
            name = said[lower.index("unknown model architecture") :].splitlines()[0].split(":", 1)[-1].strip(" '\"")
            return ConfigError(
                f"llama.cpp does not know the architecture {name!r} of {model}", hint="a newer llama.cpp may"
            )
        if "failed to load model" in lower or "error loading model" in lower:
            return ConfigError(f"llama.cpp cannot load {model}", hint=_reason(said))
        if "failed to create llama_context" in lower or "out of memory" in lower or "failed to allocate" in lower:
            hint = f"a smaller backend.context_tokens than {self.wanted.context_tokens}, or a smaller model"
            return BackendError(f"there is not enough memory for {model.name}", kind="server", hint=hint)
        return BackendError(self.post_mortem(), kind="server", hint="see backend.local.command")

    def _said(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            descriptor = self._log.fileno()
            size = os.fstat(descriptor).st_size
            start = max(0, size - _TAIL_BYTES)
            return os.pread(descriptor, size - start, start).decode("utf-8", "replace").replace("\0", "")
        return ""


class _PortTaken(Exception):
    pass


def _reason(said: str) -> str:
    lines = [line for line in said.splitlines() if "error" in line.lower() and "Traceback" not in line]
    return lines[0].strip()[:200] if lines else "is it complete, and a model for llama.cpp?"


def _port_in_use(port: int) -> ConfigError:
    return ConfigError(f"port {port} is in use", hint="another backend.local.port; 0 takes a free one")


def _port(fixed: int) -> int:
    """`fixed`, or one that is free now. Raises ConfigError where the fixed one is not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", fixed))
        except OSError:
            raise _port_in_use(fixed) from None
        return int(probe.getsockname()[1])


@dataclass
class _Shared:
    server: LocalServer
    users: int = 0


@dataclass
class Servers:
    """The servers of this process: who wants the same gets the same one, and the last user ends it."""

    _running: dict[Wanted, _Shared] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acquire(self, wanted: Wanted, *, cancelled: Callable[[], bool] | None = None) -> LocalServer:
        """A server that answered a moment ago; a dead one is replaced. Raises as LocalServer does."""
        with self._lock:
            shared = self._running.get(wanted)
            if shared is None or shared.server.dead:
                users = shared.users if shared else 0
                if shared is not None:
                    shared.server.close()
                    del self._running[wanted]
                shared = self._running[wanted] = _Shared(LocalServer(wanted, cancelled=cancelled), users)
            shared.users += 1
            return shared.server

    def release(self, wanted: Wanted) -> None:
        with self._lock:
            shared = self._running.get(wanted)
            if shared is None:
                return
            shared.users -= 1
            if shared.users <= 0:
                del self._running[wanted]
                shared.server.close()


SERVERS: Final = Servers()
