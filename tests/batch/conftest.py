"""Collections in bubblewrap, in this process or as a program that can be killed."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plans import CONFIG

from agent.batch.collect import CollectRequest, run_collect
from agent.batch.driver import Orders
from agent.batch.patience import Patience
from agent.sandbox.open import check_bubblewrap

QUICK = Orders(patience=Patience(first_s=0.2, longest_s=0.5), retry_s=0.1)
Collect = Callable[..., int]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    if not check_bubblewrap(CONFIG.sandbox).usable:
        pytest.skip("bubblewrap cannot be used here")


@pytest.fixture
def collect(bubblewrap: None, tmp_path: Path) -> Collect:
    """Runs `agent collect` here; keyword arguments are CollectRequest's, `flags` are settings."""

    def run(tasks: Path, *settings: str, orders: Orders = QUICK, **fields: Any) -> int:
        fields.setdefault("output", tmp_path / "collection")
        flags = {"sandbox.kind": "bubblewrap", "judge.target": "cpu", **fields.pop("flags", {})}
        request = CollectRequest(tasks=str(tasks), settings=settings, flags=flags, orders=orders, plain=True, **fields)
        return run_collect(request)

    return run


@pytest.fixture
def start(bubblewrap: None, tmp_path: Path) -> Iterator[Start]:
    """Starts `agent collect` as a program; what still runs at the end is killed."""
    programs: list[subprocess.Popen[str]] = []

    def begin(tasks: Path, *options: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, str(Path(__file__).with_name("drive.py")), "collect", str(tasks)]
        argv += ["--sandbox", "bubblewrap", "--target", "cpu", "-o", str(tmp_path / "collection"), *options]
        program = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        programs.append(program)
        return program

    yield begin
    for program in programs:
        program.kill()
        program.communicate()
