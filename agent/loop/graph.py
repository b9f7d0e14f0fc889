"""The state machine of an episode, think → act → route: a LangGraph graph with a durable checkpoint after every step.

The log is the truth and the checkpoint follows it: the state holds counters, phase, best result and the log's offset,
plain types of a few hundred bytes, and is projected from the ledger after every step. So a checkpoint that is behind
(killed between event and checkpoint), damaged or missing costs nothing: a resumed run starts the graph from the log.
Requests of a person drain the graph at the next step; it then goes on from its checkpoint.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphDrained
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import RunControl, Runtime
from langgraph.types import RetryPolicy

from agent.config import LimitsConfig
from agent.loop.session import Session
from agent.loop.steps import MOST_CALLS, act, next_phase, think

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

THREAD: Final = "episode"
UNLIMITED_STEPS: Final = 10**9


class State(TypedDict):
    """What a checkpoint holds; `phase` is the next step."""

    phase: str
    seq: int
    turns: int
    format_errors: int
    repeats: int
    tokens: int
    cost_usd: float
    best_speedup: float | None
    best_sha256: str


def project(session: Session) -> State:
    """The state that the log stands for."""
    ledger = session.ledger
    return State(
        phase=next_phase(session),
        seq=ledger.seq,
        turns=ledger.turns,
        format_errors=ledger.format_errors,
        repeats=ledger.repeats,
        tokens=ledger.tokens,
        cost_usd=ledger.cost_usd,
        best_speedup=ledger.best_speedup,
        best_sha256=ledger.best_sha256,
    )


def run_graph(session: Session, *, between: Callable[[], bool]) -> None:
    """Run until the loop must end. `between` is called at a drained step and says whether to go on.

    Raises whatever a step raises; the log then holds everything up to that step.
    """
    config: RunnableConfig = {
        "configurable": {"thread_id": THREAD},
        "recursion_limit": recursion_limit(session.config.limits),
    }
    with open_saver(session.folder.graph) as saver:
        graph = build_graph(saver)
        value: State | None = project(session)
        while True:
            control = RunControl()
            try:
                graph.invoke(value, config, context=session, durability="sync", control=control)
                return
            except GraphDrained:
                if not between():
                    return
                value = None


def build_graph(saver: SqliteSaver) -> "CompiledStateGraph[State, Session, State, State]":
    graph: StateGraph[State, Session, State, State] = StateGraph(State, context_schema=Session)
    # Retries live in the backend, where attempts and waits are logged once; an action must never run twice.
    never = RetryPolicy(max_attempts=1, retry_on=lambda error: False)
    graph.add_node("think", think_node, retry_policy=never)
    graph.add_node("act", act_node, retry_policy=never)
    for name in (START, "think", "act"):
        graph.add_conditional_edges(name, route, {"think": "think", "act": "act", "end": END})
    return graph.compile(checkpointer=saver)


def route(state: State) -> str:
    return state["phase"]


def recursion_limit(limits: LimitsConfig) -> int:
    """One step for the reply and one for each of its calls, every turn; our own limits end the loop, not this one."""
    return limits.turns * (1 + 2 * MOST_CALLS) + 100 if limits.turns else UNLIMITED_STEPS


@contextlib.contextmanager
def open_saver(path: Path) -> Iterator[SqliteSaver]:
    """A checkpoint database of this run alone; one that cannot be read is made again, since the log holds all."""
    try:
        saver = _connect(path)
    except sqlite3.Error:
        for leftover in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            leftover.unlink(missing_ok=True)
        saver = _connect(path)
    try:
        yield saver
    finally:
        saver.conn.close()


def _connect(path: Path) -> SqliteSaver:
    """Tables and all: a database that a full disk has left half made fails only when it is written to."""
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        # The log is fsynced; a checkpoint that a power cut loses is projected again.
        connection.execute("PRAGMA synchronous=NORMAL")
        # Plain types only: nothing in a checkpoint may name a class to be constructed.
        saver = SqliteSaver(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        saver.setup()
    except sqlite3.Error:
        connection.close()
        raise
    return saver


def think_node(state: State, runtime: Runtime[Session]) -> State:
    return _take(think, runtime)


def act_node(state: State, runtime: Runtime[Session]) -> State:
    return _take(act, runtime)


def _take(step: Callable[[Session], None], runtime: Runtime[Session]) -> State:
    session = runtime.context
    if not session.controls.any_requested:
        step(session)
    if session.controls.any_requested and runtime.control is not None:
        runtime.control.request_drain("requested")
    return project(session)
