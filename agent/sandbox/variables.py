"""A sandbox whose commands are all told some more environment variables: which GPU is held for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.sandbox.base import ExecResult, Heard, Sandbox


class WithVariables:
    """The Sandbox protocol on an open sandbox; what a single command is given goes before `variables`."""

    def __init__(self, inner: Sandbox, variables: Mapping[str, str]) -> None:
        self._inner = inner
        self._variables = dict(variables)

    @property
    def kind(self) -> str:
        return self._inner.kind

    @property
    def python(self) -> str:
        return self._inner.python

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
        told = self._variables | dict(env or {})
        return self._inner.exec(argv, timeout_s=timeout_s, cwd=cwd, stdin=stdin, env=told, log=log, heard=heard)

    def read(self, path: str, *, limit: int) -> bytes:
        return self._inner.read(path, limit=limit)

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._inner.write(path, data, mode=mode)

    def describe(self) -> str:
        return self._inner.describe()

    def close(self) -> None:
        self._inner.close()
