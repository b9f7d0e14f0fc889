"""`agent tasks synth`: candidates through one sandbox until every kind has its quota."""

import contextlib
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from agent import __version__
from agent.backends.base import Backend
from agent.backends.registry import make_backend
from agent.config import Config
from agent.errors import ConfigError, RecordError
from agent.export.similarity import Nearest, Structure, load_benchmark, nearest
from agent.tasks.admission.examiner import CandidateReport, Examination, open_examiner
from agent.tasks.admission.feed import Feed, Inbox
from agent.tasks.admission.scratch import scratch_folder
from agent.tasks.synthesis.candidate import Candidate, Maker, Source
from agent.tasks.synthesis.journal import Journal, journal_path
from agent.tasks.synthesis.measured import Measured, read_times
from agent.tasks.synthesis.mix import KINDS, TRANSFORMERS, quotas
from agent.tasks.synthesis.operators import DATA, Catalogue
from agent.tasks.synthesis.proposals import Proposer, proposals_path
from agent.tasks.synthesis.streams import Kept, Stream

AHEAD: Final = max(24, 4 * (os.cpu_count() or 1))  # candidates in front of the lanes
TOLD_EVERY: Final = 20
# Facts of the examination that are the same every time.
COUNTED: Final = ("parameters", "inputs", "outputs", "operators", "traffic_bytes", "compulsory_bytes")
GENERATION: Final = 2  # grows with every change that makes other candidates from the same seed


@dataclass(frozen=True)
class Request:
    """What was asked for. `twin`: filter a CPU-sized version of each candidate, whatever the target."""

    output: Path
    count: int
    seed: int
    mix: Mapping[str, float]
    mix_name: str
    target: Literal["cpu", "cuda"]
    config: Config
    kernelbench: Path | None = None
    twin: bool = False
    lanes: int = 0
    propose: bool = False
    compile: bool = True
    times: Path | None = None


@dataclass
class Synthesized:
    """What came out. `dropped` counts candidates by the filter that dropped them, `examined` those that ran."""

    request: Request
    kept: list[Kept]
    streams: list[Stream]
    versions: Mapping[str, str]
    missing: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    examined_now: int = 0

    @property
    def composed(self) -> int:
        return sum(stream.number for stream in self.streams)

    @property
    def dropped(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for stream in self.streams:
            total += stream.funnel()
        return total


Progress = Callable[[str], None]


def synthesize(request: Request, *, progress: Progress) -> Synthesized:
    """Compose, examine, write. Raises ConfigError, SandboxError, JudgeError; the same call goes on after any end."""
    started = time.monotonic()
    benchmark = load_benchmark(request.kernelbench) if request.kernelbench else ()
    if request.twin and (request.propose or request.target != "cuda"):
        raise ConfigError("--twin is for target cuda, and for composed tasks: proposals have one size")
    if request.output.exists() and not journal_path(request.output).exists():
        raise ConfigError(f"{request.output} exists", hint="choose another -o, or remove it")
    measured = read_times(request.times)
    request.output.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        backend = make_backend(request.config.backend) if request.propose else None
        if backend is not None:
            stack.callback(backend.close)
        scratch = stack.enter_context(scratch_folder())
        examined_on: Literal["cpu", "cuda"] = "cpu" if request.twin else request.target
        inbox = stack.enter_context(Inbox())
        opened = open_examiner(request.config, target=examined_on, scratch=scratch, mounts=(inbox.mount,))
        examiner = stack.enter_context(opened)
        known, versions = examiner.operators()
        wanted, notes = _available(request, known)
        header = _header(request, versions, known, benchmark) | ({"proposed_by": backend.name} if backend else {})
        header |= {} if request.compile else {"compile": False}
        journal = Journal(journal_path(request.output), header)
        streams = _streams(_maker(request, known, backend), wanted, benchmark, measured)
        how = Examination(lanes=request.lanes, compile=request.compile, flagged_uncompiled=True)
        feed = stack.enter_context(contextlib.closing(Feed(examiner, inbox, how)))
        examined = _fill(streams, feed, journal, progress)
    result = Synthesized(request, _ordered(streams, request.seed), streams, versions, known.missing, notes)
    result.examined_now, result.seconds = examined, time.monotonic() - started
    _write(result)
    return result


def _available(request: Request, known: Catalogue) -> tuple[dict[str, int], list[str]]:
    """The quotas, and remarks on what is missing here."""
    mix, notes = dict(request.mix), []
    if known.missing:
        shown = ", ".join(known.missing[:6]) + (" …" if len(known.missing) > 6 else "")
        notes.append(f"the installed versions lack {len(known.missing)} operators of the catalogue: {shown}")
    if mix.get(TRANSFORMERS) and not known.of("transformers"):
        share = mix.pop(TRANSFORMERS)
        if not mix:
            raise ConfigError("the sandbox has no transformers", hint="pip install transformers, or another --mix")
        largest = max(mix, key=lambda kind: mix[kind])
        mix[largest] += share
        notes.append(f"transformers is not installed in the sandbox: its {share:.2f} % went to {largest}")
    return quotas(mix, request.count), notes


def _header(
    request: Request, versions: Mapping[str, str], known: Catalogue, benchmark: Sequence[Structure]
) -> dict[str, Any]:
    """All that the file depends on, but for measured times."""
    texts = "".join(" ".join(structure.tokens) for structure in benchmark)
    return {
        "generation": GENERATION,
        "seed": request.seed,
        "mix": dict(request.mix),
        "target": request.target,
        "twin": request.twin,
        "versions": dict(versions),
        "catalogue": hashlib.sha256(DATA.read_bytes()).hexdigest(),
        "missing": list(known.missing),
        "kernelbench": hashlib.sha256(texts.encode()).hexdigest() if benchmark else None,
    }


def _maker(request: Request, known: Catalogue, backend: Backend | None) -> Maker:
    if backend is None:
        return Source(request.seed, request.target, known, request.twin)
    path = proposals_path(request.output)
    return Proposer(backend, path, seed=request.seed, target=request.target, catalogue=known)


def _streams(
    source: Maker, wanted: Mapping[str, int], benchmark: Sequence[Structure], measured: Measured
) -> list[Stream]:
    found: dict[str, Nearest] = {}

    def near(candidate: Candidate) -> Nearest | None:
        if not benchmark:
            return None
        if candidate.mark not in found:
            found[candidate.mark] = nearest(candidate.structure, benchmark)
        return found[candidate.mark]

    return [Stream(kind, wanted[kind], source, near, measured) for kind in KINDS if wanted[kind]]


def _fill(streams: Sequence[Stream], feed: Feed, journal: Journal, progress: Progress) -> int:
    """Examines until every stream is full; how many candidates that took."""
    examined = 0
    while True:
        for stream in streams:
            stream.settle(journal.reports)
        _check_exhausted(streams)
        if all(stream.full for stream in streams):
            return examined
        feed.submit(_next(streams, journal.reports, feed.waiting))
        for report in feed.reports():
            if report.status != "error":
                journal.add(report.id, report)
                examined += 1
                if not examined % TOLD_EVERY:
                    progress(_line(streams, examined))


def _check_exhausted(streams: Sequence[Stream]) -> None:
    for stream in streams:
        if stream.exhausted:
            found = f"only {len(stream.kept)} of {stream.quota} tasks of kind {stream.kind}"
            raise ConfigError(
                f"{found} in {stream.number} candidates", hint="ask for fewer, for another --mix, or time more tasks"
            )


def _next(
    streams: Sequence[Stream], reports: Mapping[str, CandidateReport], waiting: Collection[str]
) -> dict[str, str]:
    """The next candidates of all streams, as many as are likely to be needed, so that no lane is idle."""
    found: dict[str, str] = {}
    for stream in sorted(streams, key=lambda stream: stream.quota - len(stream.kept), reverse=True):
        room = AHEAD - len(waiting) - len(found)
        if not stream.full and room > 0:
            wanted = stream.wanted(reports, room, waiting=waiting)
            found |= {candidate.examined_sha256: candidate.examined for candidate in wanted}
    return found


def _line(streams: Sequence[Stream], examined: int) -> str:
    kept = sum(len(stream.kept) for stream in streams)
    wanted = sum(stream.quota for stream in streams)
    return (
        f"{kept} of {wanted} tasks from {sum(stream.number for stream in streams)} candidates, {examined} examined now"
    )


def _ordered(streams: Sequence[Stream], seed: int) -> list[Kept]:
    """Mixed, so that the first rows of a set are a sample of it; the same order for the same seed."""
    everything = [kept for stream in streams for kept in stream.kept]
    return sorted(everything, key=lambda kept: hashlib.sha256(f"{seed}/{kept.candidate.id}".encode()).digest())


def row(kept: Kept, result: Synthesized) -> dict[str, Any]:
    """The columns of CUDA-Agent-Ops-6K, and ours."""
    candidate, request = kept.candidate, result.request
    nearest_one = kept.nearest and {"name": kept.nearest.name, "similarity": kept.nearest.similarity}
    facts = kept.report.facts
    known = {name: facts[name] for name in COUNTED if name in facts}
    return {
        "task_id": candidate.id,
        "ops": list(candidate.ops),
        "data_source": candidate.kind,
        "code": candidate.text,
        "sha256": candidate.sha256,
        "about": {
            **candidate.about,
            "seed": request.seed,
            "number": candidate.number,
            "attempt": candidate.attempt,
            "target": request.target,
            "stage": "admitted",
            "filtered_as": "cpu-sized twin" if request.twin else request.target,
            "twin_sha256": candidate.examined_sha256 if request.twin else None,
            "nearest": nearest_one,
            **({} if request.twin else known),
        },
    }


def _write(result: Synthesized) -> None:
    output = result.request.output
    rows = "".join(json.dumps(row(kept, result)) + "\n" for kept in result.kept)
    _replace(output, rows)
    _replace(output.with_suffix(".funnel.json"), json.dumps(funnel(result), indent=1) + "\n")
    times = [kept.times or _times(kept, result.request) for kept in result.kept]
    if any(times):
        _replace(output.with_suffix(".times.jsonl"), "".join(json.dumps(row) + "\n" for row in times if row))


def _times(kept: Kept, request: Request) -> dict[str, Any] | None:
    """As the filters saw them: on a machine with other work, single runs; for filters and a rough order only."""
    if request.twin:
        return None
    facts = kept.report.facts
    return {
        "task_id": kept.candidate.id,
        "sha256": kept.candidate.sha256,
        "how": "filter",
        "eager_ms": facts.get("eager_ms"),
        "compile_ms": facts.get("compile_ms"),
    }


def funnel(result: Synthesized) -> dict[str, Any]:
    """How many candidates each filter dropped, by kind; what stays is the set."""
    return {
        "schema_version": 1,
        "version": __version__,
        "generation": GENERATION,
        "seed": result.request.seed,
        "target": result.request.target,
        "filtered_as": "cpu-sized twin" if result.request.twin else result.request.target,
        "mix": dict(result.request.mix),
        "versions": dict(result.versions),
        "notes": result.notes,
        "composed": result.composed,
        "kept": len(result.kept),
        "rescaled": sum(stream.rescaled for stream in result.streams),
        "dropped": dict(result.dropped.most_common()),
        "kinds": {
            stream.kind: {"composed": stream.number, "kept": len(stream.kept), "dropped": dict(stream.funnel())}
            for stream in result.streams
        },
        "kernelbench_compared": result.request.kernelbench is not None,
        "torch_compile": result.request.compile,
        "times_given": result.request.times is not None,
    }


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}", full=True) from error
