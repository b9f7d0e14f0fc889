"""`agent collect`: everything that can be wrong is checked first, then the driver works until nothing is owed."""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

from agent.batch.board import Board, View
from agent.batch.collection import Collection, Plan, make_plan
from agent.batch.driver import Driver, Orders, Requests
from agent.batch.executor import Executor
from agent.batch.faults import Fault
from agent.batch.progress import make_view
from agent.batch.scripts import Scripts
from agent.batch.summary import markdown, summarise, write_summary
from agent.config import Config, default_files, load_config
from agent.errors import EXIT_FASTER, EXIT_INFRASTRUCTURE, EXIT_NOT_FASTER, EXIT_USAGE, ConfigError, RecordError
from agent.judging.target import resolve_target
from agent.sandbox.open import pinned
from agent.tasks.candidates import Refusal
from agent.tasks.sets import TaskSet, load_tasks
from agent.ui.console import print_error, safe
from agent.ui.preflight import check_sandbox, check_server, check_target
from agent.ui.views import Outlet

EXIT_COMPLETE: Final = EXIT_FASTER
EXIT_OWED: Final = EXIT_NOT_FASTER
_HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class CollectRequest:
    """What the command line asked for; `flags` maps dotted setting names to values, None where a flag was not given."""

    tasks: str
    output: Path
    names: tuple[str, ...] = ()
    samples: int = 1
    workers: int | None = None
    executor: Literal["local", "ray"] = "local"
    ray_address: str = ""
    files: tuple[Path, ...] = ()
    settings: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    orders: Orders = field(default_factory=Orders)
    plain: bool = False
    json: bool = False


def run_collect(request: CollectRequest) -> int:
    """Returns the exit code: 0 every sample has its verdict, 1 something is owed, 3 infrastructure kept it from that.

    128 + n where signal n made it leave running episodes.
    """
    config = _configuration(request)
    tasks = load_tasks(request.tasks, names=request.names)
    scripts = Scripts(config)
    scripts.check(tasks.tasks, request.samples)
    plan = make_plan(tasks.tasks, settings=config, samples=request.samples)
    collection = Collection.at(request.output)
    with collection.lock():
        collection.settle_plan(plan)
        check_server(config.backend)
        _record_refusals(collection, tasks.refused)
        executor = _executor(request, config)
        try:
            view = make_view(plain=request.plain, as_json=request.json)
        except BaseException:
            executor.close()
            raise
        return _drive(request, collection, plan, tasks, scripts, executor=executor, view=view)


def _configuration(request: CollectRequest) -> Config:
    config = load_config(
        files=(*default_files(Path.cwd()), *request.files), settings=request.settings, flags=request.flags
    )
    if config.run.confirm:
        raise ConfigError("confirming each action needs somebody to ask", hint="set run.confirm=false")
    target = resolve_target(config.judge)
    check_target(target)
    sandbox = pinned(config.sandbox, target=target)
    check_sandbox(sandbox, target)
    run = config.run.model_copy(update={"samples": 1})
    judge = config.judge.model_copy(update={"target": target})
    return config.model_copy(update={"judge": judge, "sandbox": sandbox, "run": run})


def _executor(request: CollectRequest, config: Config) -> Executor:
    target = resolve_target(config.judge)
    if request.executor == "ray":
        from agent.batch.ray_executor import RayExecutor

        return RayExecutor(address=request.ray_address, workers=request.workers or 0, cuda=target == "cuda")
    from agent.batch.leases import DevicePool
    from agent.batch.local import LocalExecutor, default_workers

    return LocalExecutor(request.workers or default_workers(), pool=DevicePool.of_machine(target))


def _record_refusals(collection: Collection, refused: tuple[Refusal, ...]) -> None:
    """What else was in the source, once each."""
    known = {line.get("line") for line in collection.refusals.read()}
    for refusal in refused:
        if refusal.where not in known:
            collection.refusals.append({"line": refusal.where, "code": refusal.code, "detail": refusal.detail})


def _drive(
    request: CollectRequest,
    collection: Collection,
    plan: Plan,
    tasks: TaskSet,
    scripts: Scripts,
    *,
    executor: Executor,
    view: View,
) -> int:
    requests = Requests()
    try:
        driver = Driver(
            collection,
            plan,
            tasks.tasks,
            executor=executor,
            scripts=scripts,
            view=view,
            orders=request.orders,
            requests=requests,
        )
        view.say(_opening(request, plan, driver.board, executor, tasks))
        with _signals(requests):
            board = driver.run()
    finally:
        executor.close()
        view.close()
    summary = summarise(plan, board)
    _report(request, collection, summary)
    return _exit_code(driver, summary, requests)


def _opening(request: CollectRequest, plan: Plan, board: Board, executor: Executor, tasks: TaskSet) -> str:
    refused = f", {len(tasks.refused)} lines or files refused" if tasks.refused else ""
    done = f", {board.count('done')} done already" if board.count("done") else ""
    return (
        f"{len(plan.tasks)} tasks x {plan.samples} samples in {request.output}{done}{refused}; "
        f"{executor.slots} at once, {plan.settings.sandbox.kind}, target {plan.settings.judge.target}"
    )


def _report(request: CollectRequest, collection: Collection, summary: dict[str, Any]) -> None:
    try:
        write_summary(collection, summary)
    except RecordError as error:  # a full disk takes the summary, not what was collected
        print_error(error)
    out = Outlet(sys.stdout)
    if request.json:
        import json

        out.line(json.dumps({"type": "summary", **summary}))
    else:
        out.line(safe(markdown(summary).rstrip()))
        out.line(f"\nsummary: {collection.path / 'summary.md'}")


def _exit_code(driver: Driver, summary: Mapping[str, Any], requests: Requests) -> int:
    episodes = summary["episodes"]
    if requests.quit_by is not None and episodes["owed"]:
        return 128 + requests.quit_by
    halt = driver.halted_by
    if halt is not None and episodes["owed"]:
        kind = ConfigError if halt.fault is Fault.SETUP and halt.run is None else RecordError
        print_error(kind(halt.detail, hint="the same command goes on once this is put right"))
        return EXIT_INFRASTRUCTURE
    if episodes["failed"] or driver.trouble:
        return EXIT_INFRASTRUCTURE
    if episodes["owed"]:
        return EXIT_OWED
    return EXIT_USAGE if episodes["refused"] == episodes["total"] else EXIT_COMPLETE


@contextmanager
def _signals(requests: Requests) -> Iterator[None]:
    """The first drains, the second leaves what runs, a third interrupts at once. Main thread only."""

    def handle(number: int, frame: FrameType | None) -> None:
        if requests.quit:
            raise KeyboardInterrupt
        if requests.drain:
            requests.quit, requests.quit_by = True, number
        requests.drain = True

    before = {number: signal.signal(number, handle) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
