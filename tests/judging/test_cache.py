"""The trusted cache is filled once, outside any submission's reach; a task that is none is found out in a sandbox."""

import threading
from pathlib import Path

import pytest

from agent.config import load_config
from agent.errors import ConfigError
from agent.judging.cache import cache_folder, inspect, warm
from agent.sandbox.base import Sandbox
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import load_task

GELU = load_task(Path(__file__).parents[1] / "loop" / "gelu" / "model.py")
CONFIG = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])


def test_a_cache_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_AGENT_CACHE", "/proc/cache")
    with pytest.raises(ConfigError, match=r"cannot write in the cache folder /proc.*CUDA_AGENT_CACHE"):
        warm(CONFIG, GELU)


def test_folders_differ_by_what_runs_in_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_AGENT_CACHE", str(tmp_path))
    other = load_config(settings=["sandbox.kind=bubblewrap", "sandbox.python=/usr/bin/python3"])
    folders = {cache_folder(CONFIG, "cpu"), cache_folder(CONFIG, "cuda"), cache_folder(other, "cpu")}
    assert len(folders) == 3
    assert all(folder.parent == tmp_path for folder in folders)


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_it_is_filled_once_whoever_comes_first() -> None:
    if not check_bubblewrap(CONFIG.sandbox).usable:
        pytest.skip("bubblewrap cannot be used here")
    opened: list[Sandbox] = []
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(warm(CONFIG, GELU, opened=opened.append))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) <= 1
    assert set(found) == {cache_folder(CONFIG, "cpu")}
    assert (found[0] / "baselines" / GELU.sha256).is_dir()
    assert any((found[0] / "build").iterdir())
    before = len(opened)
    warm(CONFIG, GELU, opened=opened.append)
    assert len(opened) == before


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_a_good_task_is_inspected_in_silence() -> None:
    if not check_bubblewrap(CONFIG.sandbox).usable:
        pytest.skip("bubblewrap cannot be used here")
    inspect(CONFIG, GELU)
