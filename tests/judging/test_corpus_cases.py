"""The corpus itself: every case is complete, and what counts as right is what the corpus' README says."""

import ast
import json
from pathlib import Path

import pytest

from tests.corpus.cases import KNOWN, OWN, Case, cases_in, outcome

FOLDERS = sorted(path.parent for path in (*OWN.glob("*/case.json"), *KNOWN.glob("*/case.json")))
KEYS = {"expect", "family", "kind", "target", "policy", "reasons", "tolerated", "faster", "why"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_case_is_complete(folder):
    told = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    assert set(told) <= KEYS
    assert told["expect"] in ("accept", "reject")
    assert told["target"] in ("any", "cpu", "cuda")
    assert told["policy"] in ("strict", "open")
    assert len(told["why"]) > 20
    assert bool(told.get("reasons")) == (told["expect"] == "reject")
    for code in told.get("reasons", ()):
        assert code.partition(".")[0] in ("build", "load", "numeric", "replay", "timing", "policy", "tamper", "runtime")
    for name in ("model.py", "model_new.py"):
        ast.parse((folder / name).read_text(encoding="utf-8"))
    files = [*folder.glob("kernels/*.cpp"), *folder.glob("kernels/*.cu")]
    sources = [file.read_text(encoding="utf-8") for file in files]
    assert not sources or any("REGISTER_" in text for text in sources)


def test_there_are_enough_of_all_kinds():
    found = {(target, expect): 0 for target in ("cpu", "cuda") for expect in ("reject", "accept")}
    for target in ("cpu", "cuda"):
        for case in cases_in([OWN], target=target):
            found[target, case.expect] += 1
    assert found["cpu", "reject"] >= 25
    assert found["cpu", "accept"] >= 10
    assert found["cuda", "reject"] >= 12
    assert found["cuda", "accept"] >= 6
    assert len(cases_in([KNOWN])) == 48


def case(expect="reject", *, reasons=("replay.",), tolerated=False):
    return Case(
        folder=Path("a-case"), expect=expect, policy="strict", target="cpu", tolerated=tolerated, reasons=reasons
    )


def report(verdict, code=None, low=None):
    found = {"verdict": verdict, "reasons": [] if code is None else [{"code": code, "detail": "x"}]}
    if low is not None:
        found["speedup"] = {"eager": {"ratio": low, "low": low, "high": low, "call": "faster"}}
    return found


@pytest.mark.parametrize(
    ("one", "told", "right"),
    [
        (case(), report("rejected", "replay.stale_output"), True),
        (case(), report("rejected", "runtime.crash"), False),
        (case(), report("rejected"), False),
        (case(), report("accepted", low=1.0), False),
        (case(), report("error", "task.unjudgeable"), True),
        (case(), report("error", "runtime.referee"), False),
        (case(tolerated=True), report("accepted", low=1.1), True),
        (case(tolerated=True), report("accepted", low=2.0), False),
        (case("accept", reasons=()), report("accepted", low=2.0), True),
        (case("accept", reasons=()), report("error", "task.unjudgeable"), False),
        (case("accept", reasons=()), report("rejected", "numeric.mismatch"), False),
    ],
)
def test_what_counts_as_right(one, told, right):
    assert outcome(one, told, 1.0).right is right
