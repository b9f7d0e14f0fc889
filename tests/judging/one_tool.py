"""A sandbox in which a script answers in place of the tools."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.sandbox.base import ExecResult, Heard
from agent.sandbox.unconfined import UnconfinedSandbox

SAYS = """
import functools, hmac, json, sys
@functools.cache
def asked():
    return json.load(sys.stdin)
def say(report):
    data = json.dumps(report).encode()
    key = bytes.fromhex(asked()['report_key'])
    print('', hmac.digest(key, data, 'sha256').hex() + ' ' + data.decode(), sep=chr(10), flush=True)
"""


class OneTool:
    """Runs `script` in place of whatever tool is asked for, in a real sandbox of kind none; keeps what it was asked.

    `say(report)` in it prints a report as a tool does, `asked()` is what came on standard input.
    """

    def __init__(self, inner: UnconfinedSandbox, script: str) -> None:
        self.inner, self.script = inner, script
        self.kind, self.python = inner.kind, sys.executable
        self.read, self.write, self.close, self.describe = inner.read, inner.write, inner.close, inner.describe
        self.asked: list[str] = []

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
        self.asked = list(argv)
        command = (self.python, "-I", "-c", SAYS + self.script)
        return self.inner.exec(command, timeout_s=timeout_s, cwd=cwd, stdin=stdin, env=env, log=log, heard=heard)
