"""The course of a judgement: workers up, submission loaded, correctness, policy, times; every end has a typed
reason.
"""

import dataclasses
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from building import room

from referee import (
    challenge,
    correctness,
    cuda_driver,
    evidence,
    faults,
    footprint,
    freeze,
    keeping,
    machine,
    memory,
    quiet,
    samples,
    timing,
)
from referee.controls import Controls
from referee.correctness import Round, Trial
from referee.launch import Worker, WorkerFailure
from referee.options import JUDGE_S, Options
from referee.outcome import Rejected, Unjudgeable, blame
from referee.seeds import Seeds
from referee.session import Session

BY_A_LOST_GPU: Final = ("runtime.", "load.", "task.", "numeric.")
"""What a GPU that fails in the middle can look like."""


@dataclass
class Findings:
    """What is known at the end."""

    reasons: list[dict[str, str]] = field(default_factory=list)
    status: str = "error"  # passed, rejected, error
    timed: bool = False
    wanted: str = ""  # what an awaited submission was handed over for
    correct: bool | None = None
    times: samples.Times | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    build: dict[str, Any] | None = None
    submission_sha256: str = ""
    device: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def examine(options: Options, session: Session, *, timed: bool, budget_s: float) -> Findings:
    """Run all stages; nothing that happens leaves here as an exception.

    Where the submission is awaited, its signal may ask for less than `timed`, to be verified only, or for more: to be
    judged, from a build of its own and for longer.
    """
    # One thread: parallel regions in this process would only wait for the workers' and slow them down.
    torch.set_num_threads(1)
    findings = Findings()
    started = time.monotonic()
    trial: Trial | None = None
    about: machine.Asked | None = None
    try:
        _check_room()
        if "submission" not in options.awaited:
            session.begin()  # it is built beside what follows
        session.await_device()
        about = machine.Asked(options.target)
        ground = _prepare(options, session, timed=timed)
        if "submission" in options.awaited:
            findings.wanted = session.await_submission()
            timed = findings.wanted != "verify" and timed
            if findings.wanted == "judge":
                session.fresh_build, budget_s = True, max(budget_s, JUDGE_S)
            started = time.monotonic()
            if not timed:
                session.drop_primer()  # before the build, whose compilers would be taken for the primer's
            session.begin()
            ground = _renewed(ground)
        findings.timed = timed
        trial = _load(options, session, ground)
        _blaming(trial, lambda: correctness.check(trial))
        session.mark("correctness")
        findings.correct = True
        if options.target == "cuda":
            torch.cuda.empty_cache()  # the rounds' outputs; a small GPU has to hold five more contexts
        evidence.check_module(session, trial)
        _blaming(trial, lambda: _unseen(trial))
        session.mark("unseen")
        if timed:
            findings.times = _blaming(
                trial, lambda: timing.measure(trial, ground.baselines, budget_s=budget_s, marks=session.mark)
            )
        _blaming(trial, lambda: _last_looks(trial, findings.times, marks=session.mark))
        findings.status = "passed"
    except Rejected as rejected:
        findings.status = "rejected"
        findings.correct = False if not rejected.code.startswith(("policy.", "timing.")) else findings.correct
        findings.reasons.append({"code": rejected.code, "detail": rejected.detail})
    except Unjudgeable as trouble:
        findings.correct = None
        findings.reasons.append({"code": trouble.code, "detail": trouble.detail})
    except Exception as error:
        findings.correct = None
        findings.reasons.append({"code": "runtime.referee", "detail": f"{type(error).__name__}: {error}"})
    if session.primer is not None:
        session.primer.give_up()
    if options.target == "cuda" and findings.status != "passed":
        _acquit(findings)
    session.mark("end")
    findings.device = {} if about is None else about.result()
    findings.build = session.build_report
    findings.submission_sha256 = session.submission_sha256
    findings.evidence = evidence.collect(session, trial, findings.times)
    session.nursery.silence()  # before the report is written: nobody else may write into the same pipe then
    findings.seconds = round(time.monotonic() - started, 3)
    return findings


def _check_room() -> None:
    try:
        room.check(Path(os.environ.get("TMPDIR") or "/tmp"))
    except OSError as error:
        if error.errno == errno.ENOSPC:  # what else is wrong with it is said by whoever needs it
            raise Unjudgeable("runtime.no_space", str(error.strerror)) from error


def _acquit(findings: Findings) -> None:
    """Nobody is blamed for what a GPU that does not answer any more has made of a process."""
    codes = [reason["code"] for reason in findings.reasons]
    doubtful = [code for code in codes if code.startswith(BY_A_LOST_GPU) and not code.endswith("no_cuda_device")]
    if not doubtful or faults.gpu_answers():
        return
    detail = f"the GPU does not answer any more; before: {findings.reasons[0]['code']}: {findings.reasons[0]['detail']}"
    findings.status, findings.correct = "error", None
    findings.reasons = [{"code": "runtime.device_lost", "detail": detail[:1000]}]


@dataclass(frozen=True)
class Ground:
    """The trusted side, ready before anything of a submission is looked at."""

    seeds: Seeds
    construct: int
    oracle: Worker
    summary: dict[str, Any]
    baselines: dict[str, Worker]
    yardstick: Worker | None
    probe: quiet.Probe | None
    quiet: bool


def _prepare(options: Options, session: Session, *, timed: bool) -> Ground:
    seeds = Seeds()
    construct = seeds.of("construct", 0, 0)
    probe = _on_gpu(options)
    try:
        oracle, summary = session.start_oracle(seed=construct)
        yardstick = session.start_yardstick(summary["state"]) if options.policy == "strict" else None
        baselines = {}
        if timed and not _only_verified(session):
            baselines["eager"] = session.start_baseline("eager", seed=construct, compiled=False)
            baselines["compile"] = session.start_baseline("compile", seed=construct, compiled=True)
            session.primer = timing.Primer(oracle, baselines["compile"], seeds=seeds)
        session.ready_submission()
        still = probe is None or _settled(session, probe)
    except WorkerFailure as failure:
        raise blame(failure, trusted=True) from failure
    return Ground(seeds, construct, oracle, summary, baselines, yardstick, probe, still)


def _only_verified(session: Session) -> bool:
    """Whether the awaited submission is there already, and need not be timed."""
    awaited = "submission" in session.options.awaited and session.signals.has_come("submission")
    return awaited and session.signals.read("submission").get("tool") == "verify"


def _renewed(ground: Ground) -> Ground:
    """After a wait that may have been long: secrets that are younger than the submission, and a look at the GPU."""
    still = ground.probe is None or ground.probe.is_quiet()
    return dataclasses.replace(ground, seeds=Seeds(), quiet=still)


def _load(options: Options, session: Session, ground: Ground) -> Trial:
    summary = ground.summary
    try:
        submission, loaded = session.start_submission(
            init=summary["init"],
            init_blob=bytes.fromhex(summary["init_hex"]),
            seed=ground.construct,
            on_device=bool(summary["on_device"]),
        )
    except WorkerFailure as failure:
        raise blame(failure, trusted=failure.worker != "submission") from failure
    _same_state(summary["state"], loaded.get("state"))
    trial = Trial(
        oracle=ground.oracle,
        submission=submission,
        nursery=session.nursery,
        trusted=session.trusted,
        seeds=ground.seeds,
        target=options.target,
        policy=options.policy,
        precision=options.precision,
        controls=Controls(precision=options.precision),
        yardstick=ground.yardstick,
        quiet=ground.probe,
    )
    trial.notes["quiet_before"] = ground.quiet
    trial.notes["state_bytes"] = sum(layout["bytes"] for _, layout in summary["state"])
    trial.notes["weights"] = any(
        layout["dtype"].startswith(("float", "bfloat", "complex")) for _, layout in summary["state"]
    )
    trial.notes["filter"] = session.filtered
    trial.notes["own_code"] = session.own_code()
    challenge.sweep(session.nursery, trusted=session.trusted)
    return trial


def _on_gpu(options: Options) -> quiet.Probe | None:
    if options.target == "cpu":
        return None
    try:
        cuda_driver.start()
        return quiet.Probe()
    except Exception as error:
        raise Unjudgeable("task.no_cuda_device", f"the GPU cannot be used: {error}") from error


def _settled(session: Session, probe: quiet.Probe) -> bool:
    """Whether the GPU is quiet before the submission exists. The compiled baseline has made its first call by then."""
    if session.primer is not None:
        session.primer.wait()
    return probe.is_quiet()


def _same_state(expected: list[Any], loaded: Any) -> None:
    """Names, dtypes and shapes of the state_dict must be the reference's."""
    want = {name: (layout["dtype"], layout["shape"]) for name, layout in expected}
    if not isinstance(loaded, list):
        raise Rejected("tamper.protocol", "the worker does not describe its state_dict")
    try:
        got = {name: (layout["dtype"], layout["shape"]) for name, layout in loaded}
    except (TypeError, ValueError, KeyError) as error:
        raise Rejected("tamper.protocol", "the worker does not describe its state_dict") from error
    missing, extra = sorted(want.keys() - got.keys()), sorted(got.keys() - want.keys())
    if missing or extra:
        raise Rejected(
            "load.state_dict", f"ModelNew's state_dict must have Model's keys; missing: {missing}, unexpected: {extra}"
        )
    for name in want:
        if want[name] != got[name]:
            raise Rejected(
                "load.state_dict", f"{name} is {got[name][0]}{got[name][1]}, in Model {want[name][0]}{want[name][1]}"
            )


def _blaming(trial: Trial, stage: Callable[[], Any]) -> Any:
    try:
        return stage()
    except WorkerFailure as failure:
        raise blame(failure, trusted=failure.worker != trial.submission.name) from failure
    except (freeze.Gone, memory.Unreadable, ProcessLookupError) as error:
        if _is_gone(trial.submission):
            raise Rejected("runtime.exit", f"the process ended while it was stopped or read ({error})") from error
        raise Rejected("tamper.protocol", f"an address that the worker named cannot be used ({error})") from error


def _is_gone(worker: Worker) -> bool:
    try:
        freeze.thread_states(worker.pid)
    except freeze.Gone:
        return True
    return False


def _unseen(trial: Trial) -> None:
    """A round that no log watches from inside; the kernel notes where it went, and goes on noting."""
    footprint.begin(trial)
    look = footprint.Looks(trial, batch_s=trial.item_s / 2)

    def unseen() -> None:
        correctness.play(trial, Round("unseen", items=2), look=look)

    unseen()
    footprint.check(trial, again=unseen)


def _last_looks(trial: Trial, times: samples.Times | None, *, marks: Callable[[str], None]) -> None:
    """After the timed batches, when a submission may think that all is over."""
    if times is not None:
        keeping.check(trial, calls=times.calls)
        marks("kept")
        items = min(times.calls, 8)
        look = footprint.Looks(trial, batch_s=times.samples["submission"][-1].us * items / 1e6)
        again = Round("timed", items=items, weights="redraw")
        footprint.check(trial, again=lambda: correctness.play(trial, again, look=look))
        marks("looked")
        correctness.play(trial, Round("last", items=2, weights="redraw"))
    correctness.watched(trial)
    marks("watched")
    if trial.policy == "strict":
        evidence.check_mappings(trial)
