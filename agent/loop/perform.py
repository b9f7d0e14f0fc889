"""Executes one valid action in the sandbox and says what came of it, in words for the model and as data for the log."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.judging.reports import BuildReport, InspectReport, ProfileReport, SanitizeReport, VerifyReport
from agent.judging.tool_runs import NoReport, run_build, run_inspection, run_profile, run_sanitizer, run_verify
from agent.loop.actions import GPU_ACTIONS, Action, Bash, EditFile, Inspect, Sanitize, WriteFile
from agent.loop.device_time import device_time
from agent.loop.files import edit_file, write_file
from agent.loop.limits import SHORTEST_COMMAND_S
from agent.loop.observations import excerpt, excerpt_text
from agent.loop.prompts import render
from agent.loop.standby import Wanted
from agent.loop.workbench import LOGS, ObservationStatus, Outcome, Workbench
from agent.sandbox.base import ExecResult

# The merge is made before the login shell starts: stdout and stderr then are one pipe and keep their order.
MERGED: Final = ("bash", "-c", 'exec bash -lc "$1" 2>&1', "bash")
GOOD: Final = frozenset({"built", "verified", "profiled", "inspected", "clean"})
Report = BuildReport | VerifyReport | ProfileReport | InspectReport | SanitizeReport


def perform(bench: Workbench, action: Action, *, timeout_s: float, log_name: str) -> Outcome:
    """Every action but submit. Raises SandboxError when the sandbox is gone."""
    match action.arguments:
        case Bash() as arguments:
            return run_command(bench, arguments.command, timeout_s=timeout_s, log_name=log_name)
        case WriteFile() as arguments:
            return write_file(bench, arguments)
        case EditFile() as arguments:
            return edit_file(bench, arguments)
        case _:
            return run_tool(bench, action, timeout_s=timeout_s, log_name=log_name)


def run_command(bench: Workbench, command: str, *, timeout_s: float, log_name: str) -> Outcome:
    log = bench.logs / log_name
    result = bench.sandbox.exec((*MERGED, command), timeout_s=timeout_s, log=log)
    shown = excerpt(result.stdout, limit=bench.limits.observation_chars)
    if not shown.omitted:
        log.unlink(missing_ok=True)
    text = render(
        "bash", result=result, shown=shown, log=f"{LOGS}/{log_name}", timeout_s=timeout_s, memory=result.status == "oom"
    )
    return Outcome(
        text=text,
        status=_command_status(result),
        exit_code=result.exit_code,
        duration_s=result.duration_s,
        log=f"logs/{log_name}" if shown.omitted else None,
    )


def run_tool(bench: Workbench, action: Action, *, timeout_s: float, log_name: str) -> Outcome:
    """One of tools/. A tool without a report is an observation too: the submission may have caused it."""
    started = time.monotonic()
    log, name = bench.logs / log_name, action.name
    if name in GPU_ACTIONS and bench.rules.target != "cuda":
        return Outcome(render("gpu_only", name=name), "failed")
    if bench.reserve is not None and name not in GPU_ACTIONS:
        bench.reserve.wanted = True
    try:
        report = _tool(bench, action, timeout_s, log)()
    except NoReport as error:
        status: ObservationStatus = "failed" if error.status == "exited" else error.status
        tail = excerpt_text(error.stderr_tail, limit=bench.limits.observation_chars)
        text = render(
            "no_report", name=name, problem=error.message, tail=tail.head + tail.tail, log=f"{LOGS}/{log_name}"
        )
        return Outcome(text, status, duration_s=time.monotonic() - started, log=f"logs/{log_name}")
    return Outcome(
        text=report_text(report, name=name, limit=bench.limits.observation_chars, log=f"{LOGS}/{log_name}"),
        status="ok" if report.status in GOOD else "failed",
        duration_s=time.monotonic() - started,
        report=report.model_dump(mode="json"),
        log=f"logs/{log_name}",
    )


def report_text(report: Report, *, name: str, limit: int, log: str) -> str:
    """A report condensed for the model; its compiler log is cut to `limit` characters, the tail kept."""
    build = report if isinstance(report, BuildReport) else getattr(report, "build", None)
    shown = excerpt_text(build.log_tail if build and build.status == "failed" else "", limit=limit)
    device = device_time(report) if isinstance(report, ProfileReport) else None
    return render(name, report=report, build=build, shown=shown, log=log, device=device)


def _tool(bench: Workbench, action: Action, timeout_s: float, log: Path) -> Callable[[], Report]:
    if action.name == "compile":
        return lambda: run_build(bench.sandbox, target=bench.rules.target, timeout_s=timeout_s, log=log)
    asked = action.arguments
    if isinstance(asked, Sanitize):
        checks = tuple(asked.checks.split(",")) if asked.checks else ()
        return lambda: run_sanitizer(bench.sandbox, bench.task, checks=checks, timeout_s=timeout_s, log=log)
    if isinstance(asked, Inspect):
        return lambda: run_inspection(
            bench.sandbox, bench.task, counters=asked.counters, code=asked.code, timeout_s=timeout_s, log=log
        )
    return lambda: _checked(bench, action, timeout_s, log)


def _checked(bench: Workbench, action: Action, timeout_s: float, log: Path) -> Report:
    """By the tool that stands by, else by one that begins now."""
    began = time.monotonic()
    if bench.reserve is not None:
        wanted: Wanted = "verify" if action.name == "verify" else "profile"
        report = bench.reserve.serve(wanted, variables=bench.variables, timeout_s=timeout_s, log=log)
        if report is not None:
            return report
        timeout_s = max(SHORTEST_COMMAND_S, timeout_s - (time.monotonic() - began))
    run: Callable[..., Report] = run_verify if action.name == "verify" else run_profile
    return run(bench.sandbox, bench.task, bench.rules, timeout_s=timeout_s, log=log)


def build_ahead(bench: Workbench, *, timeout_s: float) -> None:
    """Compile what a check will need, before a device is waited for; what is wrong with it the check will say."""
    with contextlib.suppress(NoReport):
        run_build(bench.sandbox, target=bench.rules.target, timeout_s=timeout_s)


def _command_status(result: ExecResult) -> ObservationStatus:
    if result.status != "exited":
        return result.status
    return "ok" if result.exit_code == 0 else "failed"
