"""Finished runs on disk, made with the real folder and the real verdict record, for what judges or reads them again."""

import shutil
from pathlib import Path
from typing import Any

from agent.config import load_config
from agent.judging.reports import Verdict
from agent.loop.judgement import Judgement, verdict_record
from agent.tasks.task import load_task
from agent.trajectory.events import StopReason
from agent.trajectory.folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "corpus"
ACCEPTED: dict[str, Any] = {
    "schema_version": 1,
    "verdict": "accepted",
    "correct": True,
    "reward": 3,
    "speedup": {
        "eager": {"ratio": 9.1, "low": 8.9, "high": 9.3, "call": "faster"},
        "compile": {"ratio": 7.0, "low": 6.8, "high": 7.2, "call": "faster"},
    },
    "median_us": {"candidate": 10.0, "eager": 91.0, "compile": 70.0},
    "target": "cpu",
    "policy": "strict",
    "precision": "strict",
}


def finished_run(base: Path, case: str, *, sandbox: str = "bubblewrap", stored: bool = True) -> RunFolder:
    """A run whose best submission is a case of the corpus, and which an earlier judge took for a fast kernel.

    With `stored` false, its best/ holds nothing that could be submitted: judged without a sandbox, within milliseconds.
    """
    config = load_config(flags={"judge.target": "cpu", "sandbox.kind": sandbox})
    folder = RunFolder.create(base, load_task(CORPUS / case / "model.py"), config)
    folder.best.mkdir()
    if stored:
        shutil.copy(CORPUS / case / "model_new.py", folder.best)
        if (CORPUS / case / "kernels").is_dir():
            shutil.copytree(CORPUS / case / "kernels", folder.best / "kernels")
    shutil.rmtree(folder.workspace)
    verdict = Verdict.model_validate(ACCEPTED)
    folder.write_json("verdict.json", verdict_record(StopReason.SUBMITTED, 3, Judgement({"best": verdict})))
    return folder
