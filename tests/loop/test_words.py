"""What the model reads: the opening messages, and each kind of report condensed."""

from typing import Any

import pytest
from sessions import TASK, MakeSession
from stand_ins import Turns

from agent.config import load_config
from agent.judging.reports import (
    BuildReport,
    InspectReport,
    MedianUs,
    ProfileReport,
    Reason,
    SanitizeReport,
    Speedup,
    VerifyReport,
)
from agent.judging.tool_runs import Rules
from agent.loop.opening import first_messages, lay_out, skill_text
from agent.loop.perform import report_text
from agent.loop.prompts import TEMPLATES, render

HEAD: dict[str, Any] = {"schema_version": 1, "target": "cpu"}
DIAGNOSTIC = {"file": "kernels/a.cpp", "line": 3, "column": 7, "severity": "error", "message": "no such thing"}
FAILED = BuildReport(
    tool="build", status="failed", reasons=(Reason(code="build.compile", detail="a.cpp does not compile"),),
    diagnostics=[DIAGNOSTIC] * 30, log_tail="begin " + "x" * 5000 + " end", **HEAD,
)  # fmt: skip


def text_of(report: Any, name: str) -> str:
    return report_text(report, name=name, limit=1000, log="/opt/agent-logs/1.log")


def test_the_opening_says_where_what_and_how_much(make_session: MakeSession) -> None:
    session = make_session(Turns())
    config = load_config(settings=["limits.turns=12", "limits.time_s=1800", "limits.tokens=5000"])
    lay_out(session.folder.workspace, TASK)
    system, task = first_messages(config, TASK, Rules(target="cpu", policy="open"), session.bench.sandbox)
    assert (system.role, task.role) == ("system", "user")
    for words in (
        "/workspace/model_new.py",
        "Target: cpu. Policy: open",
        "12 turns",
        "26 minutes",
        "5000 tokens",
        "cores: ",
    ):
        assert words in system.content, words
    assert skill_text() in system.content
    assert TASK.text in task.content
    assert not skill_text().startswith("---")
    files = sorted(path.name for path in session.folder.workspace.iterdir())
    assert files == ["binding_registry.h", "kernels", "launcher.h", "model.py"]
    assert (session.folder.workspace / "model.py").read_text() == TASK.text


def test_no_budget_no_words_about_it(make_session: MakeSession) -> None:
    config = load_config(settings=["limits.turns=0", "limits.time_s=0"])
    system, _ = first_messages(config, TASK, Rules(target="cpu"), make_session(Turns()).bench.sandbox)
    assert "You have" not in system.content.split("# Skill")[0]


def test_a_failed_build_shows_messages_first_and_the_log_in_short() -> None:
    text = text_of(FAILED, "compile")
    assert text.startswith("The build failed.\n")
    assert "- build.compile: a.cpp does not compile" in text
    assert text.count("kernels/a.cpp:3:7: error: no such thing") == 20
    assert "10 further messages in /opt/agent-logs/1.log" in text
    assert f"{5010 - 1000} characters omitted" in text
    assert text.endswith(" end")


@pytest.mark.parametrize(
    ("status", "fields", "words"),
    [
        (
            "built",
            {"module": "/tmp/x.so", "sources": ("kernels/a.cpp",), "cached": True},
            "Built kernels/a.cpp in 0.0 s (cached).",
        ),
        ("no_sources", {}, "There is nothing to compile."),
        (
            "error",
            {"reasons": (Reason(code="build.io", detail="no room"),)},
            "not about your code.\n- build.io: no room",
        ),
    ],
)
def test_builds(status: Any, fields: dict[str, Any], words: str) -> None:
    assert words in text_of(BuildReport(tool="build", status=status, **fields, **HEAD), "compile")


def test_verifications() -> None:
    assert (
        text_of(VerifyReport(tool="verify", status="verified", **HEAD), "verify")
        == "Verified: correct and within the rules."
    )
    reasons = (Reason(code="numeric.mismatch", detail="off by 3"),)
    text = text_of(VerifyReport(tool="verify", status="rejected", reasons=reasons, **HEAD), "verify")
    assert text == "Rejected:\n- numeric.mismatch: off by 3"
    text = text_of(VerifyReport(tool="verify", status="rejected", reasons=reasons, build=FAILED, **HEAD), "verify")
    assert "kernels/a.cpp:3:7" in text
    text = text_of(VerifyReport(tool="verify", status="error", reasons=reasons, **HEAD), "verify")
    assert "not a judgement of your code" in text


def test_profiles() -> None:
    speedup = {
        "eager": Speedup(ratio=1.9, low=1.8, high=2.0, call="faster"),
        "compile": Speedup(ratio=1.01, low=0.98, high=1.03, call="inconclusive"),
    }
    report = ProfileReport(
        tool="profile", status="profiled", speedup=speedup, median_us=MedianUs(candidate=12.34), **HEAD
    )
    lines = text_of(report, "profile").splitlines()
    assert lines[0] == "Verified and timed. Median of one forward: 12.3 us."
    assert lines[1] == "- against eager PyTorch: 1.900x (95 % interval 1.800 to 2.000): faster"
    assert lines[2] == "- against torch.compile: 1.010x (95 % interval 0.980 to 1.030): inconclusive"
    reasons = (Reason(code="policy.torch_op", detail="aten::mm"),)
    rejected = ProfileReport(tool="profile", status="rejected", reasons=reasons, **HEAD)
    assert text_of(rejected, "profile") == "Rejected, not timed:\n- policy.torch_op: aten::mm"


def profiled_on_a_gpu(candidate: float, evidence: dict[str, Any], build: BuildReport | None = None) -> str:
    speedup = {"eager": Speedup(ratio=1.9, low=1.8, high=2.0, call="faster")}
    head = HEAD | {"target": "cuda", "evidence": evidence, "build": build}
    times = MedianUs(candidate=candidate)
    return text_of(
        ProfileReport(tool="profile", status="profiled", speedup=speedup, median_us=times, **head), "profile"
    )


def test_a_profile_on_a_gpu_shows_kernels_and_what_is_left() -> None:
    timing = {"bytes_per_call": 400_000_000, "copy_gb_per_s": 2100.0}  # written; a copy reads as much
    kernels = [["fill<float>", 2, 8.0], ["soft_kernel(float*)", 1, 112.0]]
    text = profiled_on_a_gpu(128.0, {"kernels": kernels, "timing": timing, "state_bytes": 20_000_000})
    assert "Kernels of one forward (CUPTI, one checked call), 120.0 us together:" in text
    assert text.index("112.00 us  93.3 % 1 x soft_kernel(float*)") < text.index("8.00 us   6.7 % 2 x fill<float>")
    assert "are 420.0 MB; moved once at the 4.20 TB/s of a copy on this GPU they take 100.0 us" in text
    assert "the forward reaches 78 % of the bandwidth, 1.28x left if memory is the limit" in text
    assert "not in kernels" not in text
    assert "80.0 us of the forward are not in kernels" in profiled_on_a_gpu(200.0, {"kernels": kernels})
    many = [[f"k{number}", 1, float(number)] for number in range(1, 15)]
    assert "2 more." in profiled_on_a_gpu(105.0, {"kernels": many})


def test_without_a_kernel_log_a_profile_falls_back_to_ptxas_and_says_so() -> None:
    built = BuildReport(tool="build", status="built", module="/x.so", kernels=[RESOURCES], **HEAD)
    text = profiled_on_a_gpu(12.0, {"kernels": []}, built)
    assert "The profiler recorded no kernel; what ptxas says of them:\nsoft(float*): 64 registers" in text
    assert "bandwidth" not in text


RESOURCES = {
    "source": "kernels/a.cu", "kernel": "soft(float*)", "symbol": "_Z4softPf", "arch": "sm_90a", "registers": 64,
    "shared_bytes": 256, "barriers": 1, "stack_bytes": 8, "spill_store_bytes": 4, "spill_load_bytes": 8,
}  # fmt: skip


def test_what_kernels_do_on_a_gpu() -> None:
    spills = "soft(float*): 64 registers, 256 bytes of static shared memory, SPILLS 4 bytes out, 8 in"
    built = BuildReport(tool="build", status="built", module="/x.so", kernels=[RESOURCES], **HEAD)
    assert text_of(built, "compile").splitlines()[1] == spills
    row = {
        "name": "soft",
        "count": 10,
        "total_us": 1280.0,
        "per_call_us": 128.0,
        "launches_per_call": 1.0,
        "share": 1.0,
    }
    roofline = {"kernel_us": 128.0, "least_bytes": 420_000_000, "copy_bytes_per_s": 4.2e12, "floor_us": 100.0,
                "share_of_bandwidth": 0.78125, "left": 1.28}  # fmt: skip
    counters = {"name": "soft", "time_ns": 130e3, "dram_bytes": 520e6, "stalls": {"long_scoreboard": 9.25}}
    code = {
        "symbol": "_Z4softPf",
        "instructions": 11,
        "counts": {"barriers": 2},
        "excerpt_of": "beginning",
        "excerpt": ["BRA"],
    }
    given = {"sources": ["CUPTI", "ptxas"], "calls": 10, "missing": ["ncu (Nsight Compute) is not installed"]}
    parts = {"kernels": [row], "roofline": roofline, "counters": [counters], "code": [code], "resources": [RESOURCES]}
    head = {"schema_version": 1, "tool": "inspect_kernels", "status": "inspected"}
    report = InspectReport.model_validate({**head, **given, **parts})
    text = text_of(report, "inspect")
    assert "128.00 us 100.0 % 1 x soft" in text and "(CUPTI, ptxas; mean of 10 calls)" in text
    assert "78 % of the bandwidth, 1.28x left" in text and "at the 4.20 TB/s of a copy" in text
    assert "soft: 130.0 us under ncu (caches flushed); 520.0 MB of device memory, 4.00 TB/s; " in text
    assert "warps wait most for long_scoreboard (9.2)" in text and spills in text and "  BRA" in text
    assert text.endswith("Not available: ncu (Nsight Compute) is not installed.")


def test_what_the_memory_checker_found() -> None:
    checks = [
        {
            "check": "memcheck",
            "status": "found",
            "detail": "ERROR SUMMARY: 1 error",
            "lines": ["Invalid __global__ write"],
        },
        {"check": "racecheck", "status": "clean", "detail": ""},
    ]
    head = {"schema_version": 1, "tool": "sanitize"}
    text = text_of(SanitizeReport.model_validate({**head, "status": "found", "checks": checks}), "sanitize")
    assert text.splitlines() == [
        "memcheck: found (ERROR SUMMARY: 1 error)",
        "  Invalid __global__ write",
        "racecheck: clean",
    ]
    nothing = SanitizeReport.model_validate(
        {**head, "status": "error", "reasons": [{"code": "task.stdin", "detail": "x"}]}
    )
    assert "not about your code" in text_of(nothing, "sanitize")


def test_a_template_that_lacks_a_variable_is_an_error() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        render("written", path="x")
    assert all(path.read_text().strip() for path in TEMPLATES.glob("*.j2"))
