"""The driver's decisions on reports in an order that real episodes give only now and then."""

import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from plans import make_collection, store_run

from agent.backends.base import Reply, Usage
from agent.batch.driver import Driver, Orders
from agent.batch.executor import Done, Job, Moved, Report, run_job
from agent.batch.faults import Fault
from agent.batch.patience import Patience
from agent.batch.progress import PlainView
from agent.batch.scripts import Scripts
from agent.batch.spending import JobBudget
from agent.trajectory.events import ReplyEvent, RunStart, StopReason
from agent.trajectory.writer import EventWriter

QUICK = Orders(patience=Patience(first_s=0.1, longest_s=0.1, give_up_s=5), retry_s=0.01)
BEGUN = RunStart(seq=0, t=0.0, run_id="r", task_sha256="s", agent_version="0", backend={}, sandbox={}, tools=())


class Scripted:
    """An executor whose jobs come to what `answer` says, in the order in which they were started."""

    def __init__(self, slots: int, answer: Callable[["Scripted", Job], None]) -> None:
        self.slots, self.answer = slots, answer
        self.jobs: list[Job] = []
        self.reports: deque[Report] = deque()

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self.answer(self, job)

    def next_report(self, *, timeout_s: float) -> Report | None:
        return self.reports.popleft() if self.reports else None

    def stop(self, *, judge: bool) -> None: ...

    def close(self) -> None: ...


def make_driver(path: Path, executor: Scripted, *names: str, samples: int = 1, orders: Orders = QUICK) -> Driver:
    collection, plan, tasks = make_collection(path, *names, samples=samples)
    scripts = Scripts(plan.settings)
    return Driver(collection, plan, tasks, executor=executor, scripts=scripts, view=PlainView(), orders=orders)


def test_no_sample_of_a_refused_task_is_tried_again(tmp_path: Path) -> None:
    """The first is refused by the judge's controls while the second runs, which then loses its sandbox."""

    def answer(executor: Scripted, job: Job) -> None:
        if job.sample == 0:
            executor.reports.append(Moved(job.key, event=BEGUN))
            return
        first = executor.jobs[0]
        executor.reports.append(Done(job=first, outcome="refused", fault=Fault.TASK, detail="x [task.control]"))
        executor.reports.append(Done(job=job, outcome="failed", fault=Fault.SANDBOX, detail="gone"))

    executor = Scripted(2, answer)
    assert make_driver(tmp_path, executor, "a", samples=2).run().count("refused") == 2
    assert [job.sample for job in executor.jobs] == [0, 1]


def test_a_verdict_without_a_reply_ends_no_outage(tmp_path: Path) -> None:
    """What was only judged says nothing about the server: new work still waits."""
    waiting: list[str] = []

    def answer(executor: Scripted, job: Job) -> None:
        if [started.key for started in executor.jobs].count(job.key) > 1:
            waiting.append(driver.board.trouble)
            executor.reports.append(settled(job))
        elif len(executor.jobs) == 2:
            fault = Fault.OUTAGE
            executor.reports.append(Done(job=executor.jobs[0], outcome="left", fault=fault, detail="down"))
            executor.reports.append(settled(job))

    def settled(job: Job) -> Done:
        run = store_run(driver.collection, driver.plan, task=["a", "b"].index(job.task.name))
        return Done(job=job, outcome="settled", run=run.path, reason=StopReason.SUBMITTED, reward=-1, turns=2)

    driver = make_driver(tmp_path, Scripted(2, answer), "a", "b")
    board = driver.run()
    assert board.count("done") == 2
    assert waiting == ["waiting for the language model: down"]


def test_a_run_that_is_in_use_is_tried_again_and_costs_no_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, with_verdict=False, end=False)
    tries: list[Done] = []

    def answer(executor: Scripted, job: Job) -> None:
        with run.lock() if len(tries) < 4 else contextlib.nullcontext():
            tries.append(run_job(job) if len(tries) < 4 else Done(job=job, outcome="failed", fault=Fault.SANDBOX))
        executor.reports.append(tries[-1])

    board = make_driver(tmp_path, Scripted(1, answer), "a").run()
    assert [done.fault for done in tries] == [Fault.BUSY] * 4 + [Fault.SANDBOX] * 3
    assert {done.run for done in tries[:4]} == {run.path}
    assert (board.count("failed"), len(list(collection.attempts.read()))) == (1, 3)
    assert capsys.readouterr().out.count("in use by another process") == 1


def test_what_an_unfinished_run_has_spent_counts_before_it_goes_on(tmp_path: Path) -> None:
    collection, plan, _ = make_collection(tmp_path, "a")
    run = store_run(collection, plan, with_verdict=False, end=False)
    spent = Usage(prompt_tokens=30, completion_tokens=12, cost_usd=0.25)
    with EventWriter(run.events) as writer:
        writer.append(ReplyEvent, turn=1, reply=Reply(text="", usage=spent))
    budget = JobBudget(tokens=42)
    executor = Scripted(2, lambda executor, job: None)
    driver = make_driver(tmp_path, executor, "a", orders=Orders(budget=budget))
    assert (driver.spending.now.tokens, driver.spending.now.cost_usd) == (42, 0.25)
    assert driver.run().budget and not executor.jobs
