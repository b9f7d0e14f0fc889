"""The driver of a collection: starts what is owed, records what ended, and stops for a budget, a person or trouble.

Everything that counts is on disk before it counts here: after kill -9 at any moment the same command goes on, and every
sample ends with exactly one verdict. One thread; the executor's jobs run elsewhere.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent.batch.board import Board, View
from agent.batch.collection import Collection, Plan
from agent.batch.executor import Done, Executor, Job, Moved
from agent.batch.faults import Fault
from agent.batch.patience import Outage, Patience
from agent.batch.records import attempt_line, lost_line, refusal_line
from agent.batch.scan import (
    History,
    Key,
    Result,
    Sample,
    apply_attempt,
    read_histories,
    read_refused,
    read_sample,
    scan,
)
from agent.batch.schedule import RETRY_S, Schedule
from agent.batch.scripts import Scripts
from agent.batch.spending import JobBudget, Spending, amount_of, recorded
from agent.errors import RecordError
from agent.tasks.task import Task
from agent.trajectory.events import ReplyEvent, StopReason

TICK_S: Final = 0.1


@dataclass(frozen=True)
class Orders:
    """What one command asks of the driver, beside the plan."""

    budget: JobBudget = field(default_factory=JobBudget)
    retry_errors: bool = False
    patience: Patience = field(default_factory=Patience)
    retry_s: float = RETRY_S


@dataclass
class Requests:
    """What a person asked for, set by a signal handler: plain attribute writes only."""

    drain: bool = False
    quit: bool = False
    quit_by: int | None = None


class Driver:
    """One command's work on a collection whose lock it holds and whose plan is settled."""

    def __init__(
        self,
        collection: Collection,
        plan: Plan,
        tasks: Iterable[Task],
        *,
        executor: Executor,
        scripts: Scripts,
        view: View,
        orders: Orders | None = None,
        requests: Requests | None = None,
    ) -> None:
        """Reads where every sample stands. Raises RecordError where the collection's records are damaged."""
        self.collection, self.plan, self.executor, self.view = collection, plan, executor, view
        self.orders, self.requests = orders or Orders(), requests or Requests()
        self._tasks = {task.name: task for task in tasks}
        self._entries = {entry.id: entry for entry in plan.tasks}
        self._scripts = scripts
        self._jobs: dict[Key, Job] = {}
        self._busy: set[Key] = set()
        self._outage = Outage(self.orders.patience)
        self._histories = read_histories(collection)
        self._forgiven = {k: h.burned for k, h in self._histories.items()} if self.orders.retry_errors else {}
        self.halted_by: Done | None = None
        self.trouble = False
        self.spending = Spending()
        self.board = Board(len(plan.tasks), plan.samples, self.spending)
        self._schedule = Schedule(())
        self._schedule = self._read()

    def run(self) -> Board:
        """Until nothing is owed, or nothing may be started any more and everything that ran has ended."""
        try:
            while self._jobs or self._goes_on():
                self._obey()
                self._start()
                self._take()
                self.view.update(self.board)
        finally:
            self.executor.close()
        self._take_rest()
        self.view.update(self.board)
        return self.board

    # --- where everything stands -------------------------------------------------------------------------------------

    def _read(self) -> Schedule:
        self.board.refused = read_refused(self.collection)
        for line in self.collection.attempts.read():
            self.spending.count_line(line, collection=self.collection.path)
        samples = []
        for sample in scan(self.collection, self.plan, histories=self._histories, forgiven=self._forgiven):
            for lost in sample.lost:
                line = lost_line(sample.key, lost, attempt=sample.burned, collection=self.collection.path)
                self._append(sample.key, line)
                self.spending.count_line(line, collection=self.collection.path)
            if sample.state == "refused":
                self._refuse(sample.key[0], sample.detail)
            if sample.result is not None:
                self.spending.count_result(sample.result)
            elif sample.run is not None:  # spent, though no line tells of it yet
                self.spending.count(sample.run, recorded(sample.run))
            samples.append(sample)
        for sample in samples:  # not earlier: a later sample may show that the task is to be refused
            self._place(sample)
        going = (sample for sample in samples if sample.key[0] not in self.board.refused)
        return Schedule(going, retry_s=self.orders.retry_s)

    def _place(self, sample: Sample) -> None:
        if sample.key[0] in self.board.refused:
            sample = replace(sample, state="refused", result=None)
        self.board.place(sample)

    # --- starting ----------------------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        return self.board.mode == "running" and self._schedule.owes

    def _obey(self) -> None:
        board, now = self.board, time.monotonic()
        if self.requests.quit and board.mode != "stopping":
            board.mode = "stopping"
            self.executor.stop(judge=False)
            self.view.say("stopping: running episodes are left, the same command goes on with them")
        if self.requests.drain and board.mode == "running":
            board.mode = "draining"
            self.view.say(f"draining: {len(self._jobs)} running episodes finish, none is started; again to leave them")
        if board.mode != "running":
            return
        if over := self.spending.over(self.orders.budget, elapsed_s=board.elapsed_s):
            board.mode, board.budget = "draining", over
            self.executor.stop(judge=True)
            self.view.say(f"{over}: running episodes are ended and judged")
        elif self._outage.too_long(now):
            self._halt_for_outage()

    def _start(self) -> None:
        now = time.monotonic()
        while self.board.mode == "running" and len(self._jobs) < self.executor.slots:
            if self._outage.blocks(now) or (sample := self._schedule.next(now)) is None:
                return
            self._submit(sample, now)

    def _submit(self, sample: Sample, now: float) -> None:
        id, index = sample.key
        task = self._tasks[id]
        job = Job(
            task=task,
            sample=index,
            attempt=sample.burned,
            folder=self.collection.sample_folder(self._entries[id], index),
            config=self._scripts.config_for(task, index),
            run=sample.run,
            patient=self._outage.is_patient(sample.key),
        )
        self._jobs[sample.key] = job
        self._outage.started(sample.key, now)
        self.spending.begin(sample.key, sample.run)
        self.board.start(job)
        self.executor.submit(job)

    # --- what jobs tell ----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        report = self.executor.next_report(timeout_s=TICK_S)
        while report is not None:
            if isinstance(report, Moved):
                self._moved(report)
            else:
                self._ended(report)
            report = self.executor.next_report(timeout_s=0)

    def _take_rest(self) -> None:
        """After the executor closed: what was reported last still counts."""
        while self._jobs and (report := self.executor.next_report(timeout_s=0)) is not None:
            if isinstance(report, Done):
                self._ended(report)

    def _moved(self, moved: Moved) -> None:
        self.board.move(moved)
        if moved.event is None:
            return
        self._schedule.admit(moved.key[0])
        self.spending.see(moved.key, moved.event)
        if isinstance(moved.event, ReplyEvent):
            self._answered(moved.key)

    def _answered(self, key: Key) -> None:
        if self._outage.answered(key, time.monotonic()):
            self.board.trouble = ""
            self.view.say("the language model answers again")

    def _ended(self, done: Done) -> None:
        key, now = done.job.key, time.monotonic()
        if self._jobs.pop(key, None) is None:
            return
        self.board.rows.pop(key, None)
        amount = amount_of(done.prompt_tokens, done.completion_tokens, done.cost_usd)
        self.spending.end(key, done.run, amount, device_s=done.device_s)
        if done.outcome != "left":
            self._append(key, attempt_line(done, collection=self.collection.path))
        if done.outcome == "refused":
            self._refuse(key[0], done.detail)
        self._weigh(done, now)
        sample = self._sample_after(done)
        self.board.ended_here += sample.state in ("done", "failed")
        self._place(sample)
        if key[0] not in self.board.refused:  # of a refused task nothing is tried again, however it ended
            self._schedule.ended(sample, now, wait=done.fault is not Fault.OUTAGE)

    def _weigh(self, done: Done, now: float) -> None:
        """What an end says about the server, and about whether anything else should start."""
        key = done.job.key
        if done.fault is Fault.OUTAGE and done.outcome == "left":
            if self._outage.failed(key, done.detail, now):
                self.board.trouble = f"waiting for the language model: {done.detail}"
                self.view.say(self.board.trouble)
        else:
            self._outage.ended(key)
        if done.fault is Fault.BUSY and key not in self._busy:
            self._busy.add(key)
            self.view.say(f"waiting: {done.detail}")
        if done.halts:
            self._halt(done)

    def _halt(self, done: Done) -> None:
        if self.halted_by is None:
            self.halted_by = done
            self.board.trouble = done.detail
            self.view.say(f"no further episode is started: {done.detail}")
        if self.board.mode == "running":
            self.board.mode = "draining"

    def _halt_for_outage(self) -> None:
        self.trouble = True
        self.board.mode = "draining"
        self.board.trouble = f"gave up waiting for the language model: {self._outage.detail}"
        self.view.say(self.board.trouble)

    def _sample_after(self, done: Done) -> Sample:
        key = done.job.key
        history = self._histories.setdefault(key, History())
        sample = read_sample(
            self.collection, self._entries[key[0]], key[1], history=history, forgiven=self._forgiven.get(key, 0)
        )
        if done.outcome == "settled" and sample.state != "done" and done.run is not None:
            # The last line of its log is missing (a full disk); the verdict is there.
            return Sample(key, "done", done.run, _result_of(done))
        return sample

    # --- records -----------------------------------------------------------------------------------------------------

    def _append(self, key: Key, record: dict[str, Any]) -> None:
        """A full disk takes the line, never the run; nothing new is started then."""
        apply_attempt(self._histories.setdefault(key, History()), record)
        try:
            self.collection.attempts.append(record)
        except RecordError as error:
            self._cannot_record(error)
        self.view.attempt(record)

    def _refuse(self, id: str, detail: str) -> None:
        """Once per task, with its reason; its samples are not tried any more."""
        if id in self.board.refused:
            return
        self.board.refused[id] = detail
        try:
            self.collection.refusals.append(refusal_line(id, detail))
        except RecordError as error:
            self._cannot_record(error)
        self.view.say(f"refused {id}: {detail}")
        self._schedule.refuse(id)
        for sample in [sample for key, sample in self.board.states.items() if key[0] == id]:
            self._place(sample)

    def _cannot_record(self, error: RecordError) -> None:
        self.trouble = True
        self.board.trouble = str(error)
        self.board.mode = "draining" if self.board.mode == "running" else self.board.mode
        self.view.say(f"no further episode is started: {error}")


def _result_of(done: Done) -> Result:
    assert done.run is not None
    return Result(
        run=done.run,
        reason=done.reason or StopReason.INTERNAL,
        reward=done.reward,
        turns=done.turns,
        prompt_tokens=done.prompt_tokens,
        completion_tokens=done.completion_tokens,
        cost_usd=done.cost_usd,
        wall_s=done.seconds,
    )
