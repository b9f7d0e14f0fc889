"""What tools/ report from inside the sandbox: frozen models, strict on the way in, with fields tied to the status."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

Call = Literal["faster", "slower", "inconclusive"]


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reason(_Report):
    """Why something was rejected or not judged: a dotted, stable code and a sentence that says what to change."""

    code: str
    detail: str


class Diagnostic(_Report):
    """One compiler message."""

    file: str
    line: int
    column: int
    severity: Literal["error", "warning", "note"]
    message: str


class KernelResources(_Report):
    """What one kernel takes of a multiprocessor, as ptxas says."""

    source: str
    kernel: str
    symbol: str
    arch: str
    registers: int
    shared_bytes: int
    barriers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


class BuiltObjects(_Report):
    """How many sources were compiled now, and how many were known from an earlier build."""

    compiled: int = 0
    taken: int = 0


class BuildReport(_Report):
    """tools/build.py. `module` (path of the built .so inside the sandbox) exists only where status is built."""

    schema_version: Literal[1]
    tool: Literal["build"]
    status: Literal["built", "no_sources", "failed", "error"]
    target: Literal["cpu", "cuda"]
    reasons: tuple[Reason, ...] = ()
    module: str | None = None
    cached: bool = False
    seconds: float = 0.0
    sources: tuple[str, ...] = ()
    sha256: str = ""  # over sources and flags
    diagnostics: tuple[Diagnostic, ...] = ()
    kernels: tuple[KernelResources, ...] = ()
    objects: BuiltObjects = BuiltObjects()
    log_tail: str = ""

    @model_validator(mode="after")
    def _module_iff_built(self) -> "BuildReport":
        if (self.module is not None) != (self.status == "built"):
            raise ValueError("module is given exactly when status is built")
        return self


class Speedup(_Report):
    """Median of paired ratios baseline / candidate, 95 % bootstrap interval; the call is decided on the interval."""

    ratio: float
    low: float
    high: float
    call: Call


class MedianUs(_Report):
    """Median time of one forward in microseconds; None where that side was not measured."""

    candidate: float
    eager: float | None = None
    compile: float | None = None


class VerifyReport(_Report):
    """tools/verify.py: correctness and policy, without timing."""

    schema_version: Literal[1]
    tool: Literal["verify"]
    status: Literal["verified", "rejected", "error"]
    target: Literal["cpu", "cuda"]
    reasons: tuple[Reason, ...] = ()
    submission_sha256: str = ""
    build: BuildReport | None = None
    evidence: dict[str, Any] = {}
    seconds: float = 0.0


class ProfileReport(_Report):
    """tools/profiling.py: a verified, timed comparison. Speed-ups exist only where status is profiled."""

    schema_version: Literal[1]
    tool: Literal["profile"]
    status: Literal["profiled", "rejected", "error"]
    target: Literal["cpu", "cuda"]
    reasons: tuple[Reason, ...] = ()
    submission_sha256: str = ""
    speedup: dict[Literal["eager", "compile"], Speedup] | None = None
    median_us: MedianUs | None = None
    build: BuildReport | None = None
    evidence: dict[str, Any] = {}
    seconds: float = 0.0

    @model_validator(mode="after")
    def _times_iff_profiled(self) -> "ProfileReport":
        if (self.speedup is not None and self.median_us is not None) != (self.status == "profiled"):
            raise ValueError("speed-ups and times are given exactly when status is profiled")
        return self


class KernelTime(_Report):
    """One kernel (or a copy of the driver), by name, over `calls` forwards."""

    name: str
    count: int
    total_us: float
    per_call_us: float
    launches_per_call: float
    share: float


class Roofline(_Report):
    """Time in kernels against inputs, state and outputs moved once at the speed of a copy on this device."""

    kernel_us: float
    least_bytes: int
    copy_bytes_per_s: float
    floor_us: float
    share_of_bandwidth: float
    left: float | None


class InspectReport(_Report):
    """tools/inspect_kernels.py. `sources` says where the figures come from, `missing` what could not be had and why."""

    schema_version: Literal[1]
    tool: Literal["inspect_kernels"]
    status: Literal["inspected", "failed", "error"]
    reasons: tuple[Reason, ...] = ()
    sources: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    resources: tuple[KernelResources, ...] = ()
    calls: int = 0
    kernels: tuple[KernelTime, ...] = ()
    roofline: Roofline | None = None
    counters: tuple[dict[str, Any], ...] = ()
    code: tuple[dict[str, Any], ...] = ()
    code_missing: str = ""


class MemoryCheck(_Report):
    """One tool of compute-sanitizer over one call."""

    check: Literal["memcheck", "racecheck", "initcheck"]
    status: Literal["clean", "found", "error"]
    detail: str
    lines: tuple[str, ...] = ()
    seconds: float = 0.0


class SanitizeReport(_Report):
    """tools/sanitize.py."""

    schema_version: Literal[1]
    tool: Literal["sanitize"]
    status: Literal["clean", "found", "failed", "error"]
    reasons: tuple[Reason, ...] = ()
    checks: tuple[MemoryCheck, ...] = ()


class Verdict(_Report):
    """tools/judge.py: the contract that other programs rely on (see the README of tools/)."""

    schema_version: Literal[1]
    verdict: Literal["accepted", "rejected", "error"]
    reasons: tuple[Reason, ...] = ()
    correct: bool | None
    reward: Literal[-1, 1, 2, 3] | None
    speedup: dict[Literal["eager", "compile"], Speedup] | None = None
    median_us: MedianUs | None = None
    target: Literal["cpu", "cuda"]
    policy: Literal["strict", "open"]
    precision: Literal["strict", "tf32", "bf16"]
    device: dict[str, Any] = {}
    evidence: dict[str, Any] = {}

    @model_validator(mode="after")
    def _tied(self) -> "Verdict":
        if self.verdict == "accepted" and (
            self.reward not in (1, 2, 3) or self.correct is not True or not self.speedup
        ):
            raise ValueError("an accepted verdict has reward 1, 2 or 3, correct true and speed-ups")
        if self.verdict == "rejected" and (self.reward != -1 or not self.reasons):
            raise ValueError("a rejected verdict has reward -1 and a reason")
        if self.verdict == "error" and (self.reward is not None or not self.reasons):
            raise ValueError("an error has no reward and a reason")
        return self


class TaskReport(_Report):
    """tools/inspect_task.py: can this model.py be a task at all? `summary` describes inputs, outputs and state_dict."""

    schema_version: Literal[1]
    tool: Literal["inspect_task"]
    status: Literal["ok", "invalid", "error"]
    reasons: tuple[Reason, ...] = ()
    summary: dict[str, Any] = {}
    seconds: float = 0.0


class WarmReport(_Report):
    """tools/warm_cache.py: whether the trusted cache is filled. A cold cache costs time, never correctness."""

    schema_version: Literal[1]
    tool: Literal["warm_cache"]
    status: Literal["warm", "error"]
    reasons: tuple[Reason, ...] = ()
    seconds: float = 0.0
    entry: str = ""
    objects: dict[str, str] = {}
    """Of a submission: the part of the cache that fits, and there the names of objects that it lacks, by source."""
