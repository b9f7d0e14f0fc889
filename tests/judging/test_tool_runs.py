"""A tool's report is taken as it is; everything else a tool may do ends as NoReport, never as a report."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from one_tool import OneTool

from agent.judging.tool_runs import NoReport, Rules, run_build, run_inspect, run_judge, run_standby, run_verify
from agent.sandbox.base import ExecResult, SandboxSpec
from agent.sandbox.unconfined import open_unconfined
from agent.tasks.task import Task, text_sha256

TEXT = "class Model: '\u00e9 \U0001f600'\n"
TASK = Task(path=Path("/x/model.py"), name="x", text=TEXT, sha256=text_sha256(TEXT))
RULES = Rules(target="cpu", policy="open", precision="bf16")
GOOD = {"schema_version": 1, "tool": "verify", "status": "verified", "target": "cpu"}


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Callable[[str], OneTool]]:
    inner = open_unconfined(SandboxSpec(workspace=tmp_path), python=sys.executable, consent=True)
    yield lambda script: OneTool(inner, script)
    inner.close()


def test_the_tools_are_called_as_their_readme_says(tool: Callable[[str], OneTool]) -> None:
    sandbox = tool(f"say({GOOD})")
    assert run_verify(sandbox, TASK, RULES, timeout_s=20).status == "verified"
    assert sandbox.asked[1:3] == ["-I", "/opt/agent-tools/verify.py"]
    flags = dict(zip(sandbox.asked[3::2], sandbox.asked[4::2], strict=True))
    assert flags == {
        "--workspace": "/workspace",
        "--target": "cpu",
        "--policy": "open",
        "--precision": "bf16",
        "--cache": "/opt/agent-cache",
    }


def test_the_pristine_text_arrives_on_stdin(tool: Callable[[str], OneTool]) -> None:
    script = (
        "summary = {'text': asked()['model_py']}\n"
        "say({'schema_version': 1, 'tool': 'inspect_task', 'status': 'ok', 'summary': summary})"
    )
    assert run_inspect(tool(script), TASK, target="cpu", timeout_s=20).summary["text"] == TEXT


def test_a_report_is_there_before_its_processes_have_ended(tool: Callable[[str], OneTool]) -> None:
    report = json.dumps(GOOD | {"evidence": {"much": "x" * 300_000}})
    script = (
        f"import json, time; report = {GOOD} | {{'evidence': {{'much': 'x' * 300_000}}}}\n"
        "say(report); time.sleep(2); print('more')"
    )
    found: list[tuple[float, ExecResult]] = []
    sandbox = tool(script)
    run_standby(sandbox, TASK, RULES, awaited=(), reported=lambda result: found.append((time.monotonic(), result)))
    ((at, result),) = found
    assert time.monotonic() - at > 1.0
    assert json.loads(result.stdout.text()) == json.loads(report)


def test_nothing_is_reported_of_half_a_line(tool: Callable[[str], OneTool]) -> None:
    found: list[ExecResult] = []
    run_standby(tool("print('half of it', end='')"), TASK, RULES, awaited=(), reported=found.append)
    assert not found


@pytest.mark.parametrize(
    ("script", "words", "status"),
    [
        ("print('no json')", "exit code 0 and without a report", "exited"),
        ("", "without a report", "exited"),
        ("raise SystemExit('out of luck')", "exit code 1 and without a report (out of luck)", "exited"),
        ("import os; os.abort()", "exit code 134", "exited"),
        (f"print({json.dumps(json.dumps(GOOD))})", "without a report", "exited"),
        (f"print('0' * 64, {json.dumps(json.dumps(GOOD))})", "without a report", "exited"),
        (f"sys.stdin = open('/dev/null'); say({GOOD})", "without a report", "exited"),
        ("say({'schema_version': 1})", "not valid", "exited"),
        (f"say({GOOD | {'status': 'splendid'}})", "not valid: status", "exited"),
        (f"say({GOOD | {'reward': 3}})", "not valid: reward", "exited"),
        ("import time; time.sleep(60)", "took longer than 1 s", "timeout"),
    ],
)
def test_what_is_no_report_is_none(tool: Callable[[str], OneTool], script: str, words: str, status: str) -> None:
    with pytest.raises(NoReport) as caught:
        run_verify(tool(script), TASK, RULES, timeout_s=1 if "sleep" in script else 20)
    assert words in str(caught.value)
    assert caught.value.status == status
    assert "\n" not in str(caught.value)


def test_the_tail_of_what_a_tool_said_is_kept(tool: Callable[[str], OneTool]) -> None:
    with pytest.raises(NoReport) as caught:
        run_build(tool("import sys; sys.stderr.write('x' * 9000 + 'the end'); sys.exit(9)"), target="cpu", timeout_s=20)
    assert caught.value.stderr_tail.endswith("the end")
    assert len(caught.value.stderr_tail) == 2000


def test_a_verdict_must_hold_together(tool: Callable[[str], OneTool]) -> None:
    verdict = {
        "schema_version": 1, "verdict": "accepted", "correct": True, "reward": 3, "speedup": None,
        "target": "cpu", "policy": "open", "precision": "bf16",
    }  # fmt: skip
    with pytest.raises(NoReport, match="accepted verdict has"):
        run_judge(tool(f"say({verdict})"), TASK, RULES, timeout_s=20)


@pytest.mark.parametrize(
    "noise",
    [
        f"print({json.dumps(json.dumps(GOOD | {'status': 'rejected'}))})",
        "print('no end of line', end='', flush=True)",
        "sys.stdout.write('x' * 6_000_000 + chr(10))",
        "print(chr(10) * 1000)",
    ],
)
def test_of_all_that_is_printed_the_signed_line_counts(tool: Callable[[str], OneTool], noise: str) -> None:
    assert run_verify(tool(f"{noise}\nsay({GOOD})\n{noise}"), TASK, RULES, timeout_s=20).status == "verified"


def test_a_report_counts_whatever_comes_of_the_process_afterwards(tool: Callable[[str], OneTool]) -> None:
    script = f"say({GOOD}); import os, time; time.sleep(60)"
    assert run_verify(tool(script), TASK, RULES, timeout_s=2).status == "verified"
