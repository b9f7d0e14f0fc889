"""The two steps of an episode, recorded as they happen: think (one reply of the model) and act (one of its calls)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from agent.backends.base import Message, Reply, ToolCall
from agent.errors import ContextOverflow
from agent.loop.actions import (
    GPU_ACTIONS,
    REPEATABLE,
    Action,
    EditFile,
    Invalid,
    Submit,
    action_names,
    parse_call,
    tool_schemas,
)
from agent.loop.files import content_sha256, resume_edit
from agent.loop.keeping import keep_submission, kept_in_view, submission_sha256, weakest_speedup
from agent.loop.limits import check, command_timeout_s, nearly_spent, remaining_s
from agent.loop.observations import excerpt_text
from agent.loop.perform import build_ahead, perform
from agent.loop.prompts import render
from agent.loop.session import Session
from agent.loop.waiting import Interrupted, OutOfTime, wait_for
from agent.loop.workbench import Outcome
from agent.sandbox.snapshot import SnapshotError
from agent.trajectory.events import ActionEvent, ObservationEvent, ReplyEvent, SnapshotEvent

MOST_CALLS: Final = 16


def think(session: Session) -> None:
    """Say what is owed to the model, ask it once, record the reply whether or not it can be used.

    Raises BackendError, ContextOverflow, ScriptEnd, Interrupted, OutOfTime; then no reply is recorded.
    """
    settle(session)
    session.status("thinking", session.backend.name)
    messages, window = tuple(session.log.conversation.messages), session.window
    if window is None:
        receive(session, _ask(session, messages))
        return
    while True:  # bounded by the window's shrinking
        view = window.view(messages, lambda: kept_in_view(session.folder, session.ledger))
        try:
            reply = _ask(session, view.messages)
            break
        except ContextOverflow:
            if not window.shrink():
                raise
    window.measured(view, reply.usage.prompt_tokens)
    receive(session, reply, condensed=view.hidden)


def _ask(session: Session, messages: Sequence[Message]) -> Reply:
    return wait_for(
        lambda: session.backend.chat(messages, tool_schemas(session.bench.rules.target)),
        leave=lambda: session.controls.leaving,
        timeout_s=remaining_s(session.config.limits, session.clock.elapsed_s()),
    )


def settle(session: Session) -> None:
    """Say what is owed to the model before it speaks again: a complaint, an answer, a budget's end. Safe to repeat."""
    if session.ledger.owes_complaint:
        generic = render("format_error", length=session.ledger.truncated, names=_offered(session))
        session.say(session.ledger.complaint or generic, "format_error")
    if session.ledger.owes_answer:
        session.say(render("refused"), "refusal")
    left = nearly_spent(session.config.limits, session.ledger, session.clock.elapsed_s())
    if left and not session.ledger.warned:
        session.say(render("budget", left=left), "limit")


def receive(session: Session, reply: Reply, *, condensed: int = 0) -> None:
    """Record one reply of the model, whoever asked it; its calls then are pending."""
    turn = session.ledger.turns + 1
    reply = with_unique_ids(reply, turn, session.ledger.call_ids)
    session.log.record(ReplyEvent, turn=turn, reply=reply, format_error=format_error(reply), condensed_turns=condensed)


def next_phase(session: Session) -> Literal["think", "act", "end"]:
    if check(session.config.limits, session.ledger, session.clock.elapsed_s()) is not None:
        return "end"
    return "act" if session.ledger.pending else "think"


def take_turn(session: Session, reply: Reply) -> None:
    """One whole turn of a policy that is asked elsewhere: its reply, all its calls, and what must be said to it next.

    Raises OutOfTime, Interrupted, and what an action raises; a reply that comes too late is not recorded.
    """
    left = remaining_s(session.config.limits, session.clock.elapsed_s())
    if left is not None and left <= 0:
        raise OutOfTime
    receive(session, reply)
    while (phase := next_phase(session)) == "act":
        if session.controls.leaving:
            raise Interrupted
        act(session)
    if phase == "think":
        settle(session)


def act(session: Session) -> None:
    """Give the first pending call of the last reply its observation, executing it where that is right."""
    call = next(iter(session.ledger.pending.values()))
    parsed = parse_call(call)
    refusal = _why_not(session, parsed)
    if refusal is not None:
        _observe(session, call, refusal)
        return
    assert isinstance(parsed, Action)
    session.log.record(
        ActionEvent,
        turn=session.ledger.turns,
        call_id=call.id,
        name=call.name,
        arguments=parsed.arguments.model_dump(exclude_none=True),
        before_sha256=_before(session, parsed),
    )
    _execute(session, call, parsed)
    if session.bench.reserve is not None and next_phase(session) == "think":
        session.bench.reserve.prepare()


@dataclass(frozen=True)
class Recovery:
    """What becomes of the action that a crash left without an observation. `outcome` None: it is executed again."""

    call: ToolCall
    outcome: Outcome | None

    @property
    def lost(self) -> bool:
        """Whether nobody knows what the action did."""
        return self.outcome is not None and self.outcome.status == "not_executed"


def recover(session: Session) -> Recovery | None:
    """After a crash. Calls that were never begun are still pending and simply come next.

    What leaves the same state whether it ran once or twice runs again; an edit is finished or recognised as made; a
    command must not simply run twice, so the model is told.
    """
    begun = session.ledger.begun
    if begun is None:
        return None
    call = session.ledger.pending[begun.call_id]
    if begun.name in REPEATABLE:
        return Recovery(call, None)
    lost = Outcome(render("not_executed", why="crash"), "not_executed")
    if begun.name != "edit_file":
        return Recovery(call, lost)
    arguments = EditFile.model_validate(begun.arguments)
    return Recovery(call, resume_edit(session.bench, arguments, begun.before_sha256) or lost)


def redo(session: Session, recovery: Recovery) -> None:
    """Give the action its observation, without recording the action a second time."""
    if recovery.outcome is not None:
        _observe(session, recovery.call, recovery.outcome)
        return
    parsed = parse_call(recovery.call)
    assert isinstance(parsed, Action)
    _execute(session, recovery.call, parsed)


def close_pending(session: Session) -> None:
    """Every call id gets its observation, also when the loop ends in the middle of a reply."""
    for call in tuple(session.ledger.pending.values()):
        _observe(session, call, Outcome(render("not_executed", why="stop"), "not_executed"))


def format_error(reply: Reply) -> str | None:
    """Why nothing in a reply can be executed; None when at least one call can. A refusal is no format error."""
    if reply.refusal is not None or reply.finish_reason == "refusal":
        return None
    if reply.finish_reason == "length":
        return "the reply was cut off at the output limit"
    if not reply.calls:
        return str(reply.raw.get("format_error") or "the reply held no action")
    problems = [parsed.problem for call in reply.calls if isinstance(parsed := parse_call(call), Invalid)]
    return problems[0] if len(problems) == len(reply.calls) else None


def with_unique_ids(reply: Reply, turn: int, taken: set[str]) -> Reply:
    """Servers send empty and repeated call ids; within one run every id must be unique. `raw` keeps what was sent."""
    seen, calls = set(taken), []
    for index, call in enumerate(reply.calls):
        name = call.id if call.id and call.id not in seen else f"call-{turn}-{index}"
        while name in seen:
            name += "x"
        seen.add(name)
        calls.append(call if name == call.id else call.model_copy(update={"id": name}))
    return reply.model_copy(update={"calls": tuple(calls)})


def _before(session: Session, action: Action) -> str | None:
    if not isinstance(action.arguments, EditFile):
        return None
    return content_sha256(session.bench, action.arguments.path)


def _why_not(session: Session, parsed: Action | Invalid) -> Outcome | None:
    if session.ledger.truncated:
        return Outcome(render("not_executed", why="length"), "not_executed")
    if session.ledger.observed >= MOST_CALLS:
        return Outcome(render("not_executed", why="too_many", most=MOST_CALLS), "not_executed")
    if isinstance(parsed, Invalid):
        text = render("invalid", problem=parsed.problem, schema=parsed.schema, names=_offered(session))
        return Outcome(text, "invalid")
    allowed, message = session.confirmed(parsed.name, parsed.arguments.model_dump(exclude_none=True))
    return None if allowed else Outcome(render("denied", message=message), "denied")


def _execute(session: Session, call: ToolCall, action: Action) -> None:
    outcome = _submit(session) if isinstance(action.arguments, Submit) else _perform(session, action)
    if outcome.status == "ok" and action.name in ("verify", "profile"):
        _snapshot(session, outcome)
    _observe(session, call, outcome)


def _perform(session: Session, action: Action) -> Outcome:
    if not _measures(session, action):
        return _run(session, action)
    if session.device is not None and session.bench.rules.target == "cuda" and action.name in ("verify", "profile"):
        _build_ahead(session)
    if session.bench.reserve is not None:
        session.bench.reserve.be_quiet()
    with session.leased() as lease:
        return replace(_run(session, action, lease.variables), device_wait_s=lease.waited_s)


def _measures(session: Session, action: Action) -> bool:
    """Whether nothing else may run on the device meanwhile."""
    if action.name == "profile":
        return True
    return action.name in ("verify", *GPU_ACTIONS) and session.bench.rules.target == "cuda"


def _offered(session: Session) -> tuple[str, ...]:
    return action_names(session.bench.rules.target)


def _run(session: Session, action: Action, variables: Mapping[str, str] | None = None) -> Outcome:
    limits, bench = session.config.limits, session.bench.told(variables or {})
    is_tool = action.name in ("compile", "verify", "profile", *GPU_ACTIONS)
    timeout_s = command_timeout_s(
        limits,
        session.clock.elapsed_s(),
        wanted_s=getattr(action.arguments, "timeout_s", None),
        most_s=limits.tool_timeout_s if is_tool else limits.command_timeout_s,
    )
    log_name = f"{session.ledger.actions:04d}-{action.name}.log"
    session.status("acting", _describe(action))
    return wait_for(
        lambda: perform(bench, action, timeout_s=timeout_s, log_name=log_name),
        leave=lambda: session.controls.leaving,
        give_up=session.bench.abandon,
    )


def _build_ahead(session: Session) -> None:
    timeout_s = command_timeout_s(
        session.config.limits,
        session.clock.elapsed_s(),
        wanted_s=None,
        most_s=session.config.limits.tool_timeout_s,
    )
    session.status("acting", "building")
    wait_for(
        lambda: build_ahead(session.bench, timeout_s=timeout_s),
        leave=lambda: session.controls.leaving,
        give_up=session.bench.abandon,
    )


def _submit(session: Session) -> Outcome:
    """The first submit of something unverified only says so; a second one is accepted."""
    sha256 = submission_sha256(session.folder.workspace)
    if sha256 in session.ledger.verified or session.ledger.submit_warned:
        return Outcome(render("submitted"), "ok")
    has_best = bool(session.ledger.best_sha256)
    return Outcome(render("submit_unverified", missing=sha256 is None, has_best=has_best), "failed")


def _snapshot(session: Session, outcome: Outcome) -> None:
    speedup = weakest_speedup(outcome.report or {})
    best = session.ledger.best_speedup
    is_best = best is None if speedup is None else best is None or speedup > best
    try:
        sha256 = keep_submission(session.folder, is_best=is_best)
    except SnapshotError:  # changed since it was verified: then there is nothing to keep
        return
    session.log.record(
        SnapshotEvent, turn=session.ledger.turns, submission_sha256=sha256, speedup=speedup, is_best=is_best
    )
    if is_best and session.bench.reserve is not None:
        session.bench.reserve.best_changed()


def _observe(session: Session, call: ToolCall, outcome: Outcome) -> None:
    session.log.record(
        ObservationEvent,
        turn=session.ledger.turns,
        call_id=call.id,
        name=call.name,
        text=_shortened(outcome.text, limit=3 * session.config.limits.observation_chars),
        status=outcome.status,
        exit_code=outcome.exit_code,
        duration_s=outcome.duration_s,
        device_wait_s=outcome.device_wait_s,
        report=outcome.report,
        log=outcome.log,
        diff=outcome.diff,
    )


def _shortened(text: str, *, limit: int) -> str:
    """The last bound, whatever a tool, a file name or the model's own call brought into the text."""
    shown = excerpt_text(text, limit=limit)
    return render("shortened", shown=shown) if shown.omitted else text


def _describe(action: Action) -> str:
    first = next(iter(action.arguments.model_dump().values()), "")
    line = str(first).strip().splitlines()
    return f"{action.name} {line[0][:120]}" if line else action.name
