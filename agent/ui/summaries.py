"""One line for everything that happens in a run: actions, observations, stop reasons, verdicts."""

from typing import Any, Final

from pydantic import ValidationError

from agent.config import JudgeConfig
from agent.judging.reports import BuildReport, ProfileReport, Reason, Speedup, Verdict, VerifyReport
from agent.trajectory.events import ObservationEvent, StopReason, VerdictEvent
from agent.ui.console import one_line
from agent.ui.quantities import show_speedup

STOP_WORDS: Final = {
    StopReason.SUBMITTED: "the model submitted its work",
    StopReason.TURNS: "the turn limit was reached",
    StopReason.TIME: "the time was used up",
    StopReason.TOKENS: "the token budget was used up",
    StopReason.COST: "the cost budget was used up",
    StopReason.CONTEXT: "the conversation no longer fits the model's window",
    StopReason.FORMAT: "too many unusable replies in a row",
    StopReason.STUCK: "the same action gave the same result again and again",
    StopReason.REFUSED: "the model declined to work on the task",
    StopReason.SCRIPT_END: "the recorded turns ended",
    StopReason.ROLLOUT_END: "the trainer ended the rollout",
    StopReason.BACKEND: "the language model could not be reached any more",
    StopReason.SANDBOX: "the sandbox was lost",
    StopReason.OOM: "the sandbox ran out of memory",
    StopReason.DISK_FULL: "the disk is full",
    StopReason.CANCELLED: "stopped by a person or a signal",
    StopReason.INTERNAL: "a fault in this program",
}

REWARD_WORDS: Final = {
    3: "faster than eager and torch.compile",
    2: "faster than eager",
    1: "correct, not shown to be faster",
    -1: "not correct or against the rules",
}


UNDECIDED_WORDS: Final = "correct, too close to tell whether faster"
UNQUIET_WORDS: Final = "correct, too noisy here to tell whether faster"


def rules_words(rules: JudgeConfig | Verdict) -> str:
    return f"target {rules.target}, policy {rules.policy}, precision {rules.precision}"


def action_words(name: str, arguments: dict[str, Any], width: int = 120) -> str:
    """What an action does, without its name: the command, the path and size of a file, a summary."""
    match name:
        case "bash":
            return one_line(str(arguments.get("command", "")), width)
        case "write_file":
            content = str(arguments.get("content", ""))
            return f"{one_line(str(arguments.get('path', '')), width)} ({len(content.splitlines())} lines)"
        case "edit_file":
            return one_line(str(arguments.get("path", "")), width)
        case "submit":
            return one_line(str(arguments.get("summary") or ""), width)
        case _:
            return one_line(", ".join(f"{k}={v}" for k, v in arguments.items()), width)


def outcome_words(event: ObservationEvent, width: int = 140) -> str:
    """What came of an action, as short as it can be said."""
    if event.report and (words := report_words(event.report)):
        return one_line(words, width)
    if event.status == "ok":
        return _changed(event.diff) if event.diff else ""
    head = {
        "timeout": "timed out",
        "oom": "killed: out of memory",
        "denied": "not run: a person said no",
        "not_executed": "not run",
        "invalid": "not usable",
        "failed": "failed" if event.exit_code is None else f"exit {event.exit_code}",
    }[event.status]
    return one_line(f"{head}: {_last_line(event.text)}", width) if event.text.strip() else head


def report_words(report: dict[str, Any]) -> str:
    """A line for a report of tools/; empty for anything that is none."""
    try:
        match report.get("tool"):
            case "build":
                return _build_words(BuildReport.model_validate(report))
            case "verify":
                verify = VerifyReport.model_validate(report)
                return _status_words(verify.status, verify.reasons)
            case "profile":
                return _profile_words(ProfileReport.model_validate(report))
    except ValidationError:
        return ""
    return ""


def reason_words(reasons: tuple[Reason, ...]) -> str:
    """`code: detail`, and how many further reasons there are."""
    if not reasons:
        return ""
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0].code}: {reasons[0].detail}{more}"


def verdict_of(event: VerdictEvent | None) -> Verdict | None:
    """The typed verdict of an event; None where there is none or where it does not fit the contract."""
    if event is None:
        return None
    try:
        return Verdict.model_validate(event.verdict)
    except ValidationError:
        return None


def reward_words(verdict: Verdict, *, scored: bool) -> str:
    """`, reward 2: …`; `scored` is false where the run got none: trouble or a person ended it, not the model."""
    if verdict.reward is None:
        return ""
    return f", reward {verdict.reward}: {meaning(verdict)}" if scored else ", not scored: it was cut off"


def meaning(verdict: Verdict) -> str:
    """What the reward says. That the clock could not tell is not the same as that it is not faster."""
    quiet = is_quiet(verdict.evidence)
    return reward_meaning(verdict.reward, eager=(verdict.speedup or {}).get("eager"), quiet=quiet)


def is_quiet(evidence: Any) -> bool:
    """Whether nothing in a verdict's evidence says that others kept the machine busy."""
    timing = evidence.get("timing") if isinstance(evidence, dict) else None
    return not (isinstance(timing, dict) and timing.get("quiet") is False)


def reward_meaning(reward: int | None, *, eager: Speedup | None, quiet: bool = True) -> str:
    """What a reward says; empty without one. `eager` decides alone between 1 and 2."""
    if reward == 1 and eager is not None and eager.call == "inconclusive":
        return UNDECIDED_WORDS if quiet else UNQUIET_WORDS
    return "" if reward is None else REWARD_WORDS[reward]


def verdict_words(verdict: Verdict) -> str:
    """`accepted, reward 3: 1.93× over eager, 1.21× over torch.compile`."""
    if verdict.verdict != "accepted":
        return _status_words(verdict.verdict, verdict.reasons)
    return f"accepted, reward {verdict.reward}: {_speedup_words(verdict.speedup or {})}"


def _profile_words(report: ProfileReport) -> str:
    if report.status != "profiled":
        return _status_words(report.status, report.reasons)
    return _speedup_words(dict(report.speedup or {}))


def _speedup_words(speedup: dict[Any, Any]) -> str:
    names = {"eager": "eager", "compile": "torch.compile"}
    return ", ".join(f"{show_speedup(speedup[key])} over {name}" for key, name in names.items() if key in speedup)


def _build_words(report: BuildReport) -> str:
    if report.status == "built":
        count = len(report.sources)
        cached = ", cached" if report.cached else ""
        return f"built {count} source{'s' if count != 1 else ''}{cached}"
    first = next((d for d in report.diagnostics if d.severity == "error"), None)
    if first:
        return f"{report.status}: {first.file}:{first.line}: {first.message}"
    return _status_words(report.status, report.reasons)


def _status_words(status: str, reasons: tuple[Reason, ...]) -> str:
    words = reason_words(reasons)
    return f"{status}: {words}" if words else status


def _changed(diff: str) -> str:
    lines = diff.splitlines()
    added = sum(1 for line in lines if line.startswith("+") and not line.startswith("+++"))
    removed = sum(1 for line in lines if line.startswith("-") and not line.startswith("---"))
    return f"+{added} −{removed} lines"


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
