"""Plays the loop until something stops it, and turns whatever that was into one recorded StopReason."""

import contextlib
import sqlite3
import traceback
from collections.abc import Callable
from typing import Final

from agent.backends.replay import ScriptEnd
from agent.backends.retry import ChatCancelled
from agent.errors import BackendError, ContextOverflow, JudgeError, RecordError, SandboxError
from agent.loop.graph import run_graph
from agent.loop.limits import Stop, check
from agent.loop.session import Session
from agent.loop.steps import close_pending
from agent.loop.waiting import Interrupted, OutOfTime
from agent.trajectory.events import StopEvent, StopReason
from agent.trajectory.writer import means_full_disk

DETAIL_CHARS: Final = 2000


def play(session: Session, begin: Callable[[], None]) -> tuple[Stop | None, Exception | None]:
    """`begin`, then the graph. The stop is recorded, every open call has its observation before.

    (None, None) when a person quit: nothing is recorded, so that the run can be resumed. The exception is what caused
    the stop, if one did.
    """

    def run() -> None:
        begin()
        run_graph(session, between=lambda: _go_on(session))

    stop, error = attempt(session, run)
    if stop is None and not session.controls.quit_requested:
        stop = Stop(StopReason.INTERNAL, "the graph ended without a reason")
    if stop is not None:
        conclude(session, stop)
    return stop, error


def conclude(session: Session, stop: Stop) -> None:
    """Record why the loop ended; every open call has its observation before."""
    # Where nothing can be recorded any more, the log ends with what is intact; a resumed run goes on from there.
    with contextlib.suppress(RecordError):
        close_pending(session)
        session.log.record(StopEvent, reason=stop.reason, detail=stop.detail)


def attempt(session: Session, work: Callable[[], None]) -> tuple[Stop | None, Exception | None]:
    """Do `work`; why the loop must end after it, and the exception where one is the cause.

    No reason: it can go on, or a person quit (session.controls says so). A fault of this program is a reason too.
    """
    try:
        work()
    except (Interrupted, ChatCancelled):
        pass
    except Exception as error:  # noqa: BLE001 - the edge where a fault becomes a recorded stop reason
        return stop_of(error), error
    if session.controls.quit_requested:
        return None, None
    stop = check(session.config.limits, session.ledger, session.clock.elapsed_s())
    if stop is None and session.controls.stop_requested:
        stop = Stop(StopReason.CANCELLED, "a person or a signal asked to stop")
    return stop, None


def stop_of(error: Exception) -> Stop:
    """The reason that an exception stands for."""
    match error:
        case OutOfTime():
            return Stop(StopReason.TIME, "the time budget ended during a step")
        case ScriptEnd():
            return Stop(StopReason.SCRIPT_END, str(error))
        case ContextOverflow():
            return Stop(StopReason.CONTEXT, str(error))
        case BackendError():
            return Stop(StopReason.BACKEND, f"{error.kind}: {error}")
        case SandboxError() | JudgeError() | OSError() if means_full_disk(error):
            return Stop(StopReason.DISK_FULL, str(error))
        case SandboxError():
            detail = f"{error} {error.post_mortem}".strip()
            return Stop(StopReason.OOM if error.oom else StopReason.SANDBOX, detail[:DETAIL_CHARS])
        case RecordError() | sqlite3.OperationalError():
            return Stop(StopReason.DISK_FULL, str(error))
        case JudgeError():
            return Stop(StopReason.SANDBOX, str(error))
        case _:
            return Stop(StopReason.INTERNAL, _fault(error))


def _fault(error: Exception) -> str:
    """What went wrong comes first, because one line of this is shown; where it did comes after it."""
    what = "".join(traceback.format_exception_only(error)).strip()[:DETAIL_CHARS]
    where = "".join(traceback.format_tb(error.__traceback__))
    return f"{what}\n{where[-DETAIL_CHARS:]}"


def _go_on(session: Session) -> bool:
    """Between two steps, when a person asked for something: whether the loop goes on."""
    if session.controls.leaving:
        return False
    session.controls.clear_pause()
    if session.operator is None:
        return True
    choice = session.ask(lambda operator: operator.paused())
    if choice.kind == "message" and choice.text.strip():
        session.say(choice.text, "person")
    elif choice.kind == "stop":
        session.controls.request_stop()
    elif choice.kind == "quit":
        session.controls.request_quit()
    return not session.controls.leaving
