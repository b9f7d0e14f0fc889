"""A run that begins with an earlier try: its files lie in the workspace, its story is the third message."""

from pathlib import Path

import pytest
from stand_ins import Turns, bash, call, reply

from agent.config import Config, load_config
from agent.errors import ConfigError
from agent.loop.control import SilentListener
from agent.loop.episode import EpisodeResult, resume_episode, run_episode
from agent.loop.opening import Seed, keep_seed, lay_out, read_seed
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import load_task
from agent.trajectory.events import MessageEvent, ObservationEvent
from agent.trajectory.folder import RunFolder
from agent.trajectory.reader import read_events

GELU = load_task(Path(__file__).parent / "gelu" / "model.py")
NOTES = "A tiled loop was tried: 0.9x.\nVectorising by hand was not tried."


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    folder = tmp_path / "earlier"
    (folder / "kernels").mkdir(parents=True)
    (folder / "model_new.py").write_text("not python\n")
    (folder / "kernels" / "a.cpp").write_text("// empty\n")
    (folder / "model.py").write_text("not the task\n")
    return folder


def make_folder(tmp_path: Path) -> RunFolder:
    config = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])
    return RunFolder.create(tmp_path / "runs", GELU, config)


def opening(folder: RunFolder) -> list[str]:
    messages = [event.message for event in read_events(folder.events) if isinstance(event, MessageEvent)]
    return [message.content for message in messages[1:]]


def check_opening(folder: RunFolder, result: EpisodeResult) -> None:
    assert result.reward == -1, result
    task, story = opening(folder)
    assert GELU.text in task
    assert NOTES in story
    assert "kernels/a.cpp, model_new.py" in story
    seen = next(event for event in read_events(folder.events) if isinstance(event, ObservationEvent))
    assert seen.text == "Exit code 0.\nnot python\n// empty"
    assert (folder.workspace / "model.py").read_text() == GELU.text


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_killed_before_or_within_its_opening_it_has_the_same_opening(tmp_path: Path, earlier: Path) -> None:
    if not check_bubblewrap(Config().sandbox).usable:
        pytest.skip("bubblewrap cannot be used here")
    look = bash("cat model_new.py kernels/a.cpp; rm -r model_new.py kernels")
    backend = Turns(look, reply(call("submit"), call("submit")))
    folder = make_folder(tmp_path)
    seed = Seed(earlier, NOTES)
    result = run_episode(
        folder.config(), GELU, folder, backend=backend, listener=SilentListener(), seed=Seed(earlier, NOTES)
    )
    check_opening(folder, result)
    lines = folder.events.read_bytes().splitlines(keepends=True)
    for count in (0, 1, 3):
        cut = make_folder(tmp_path)
        keep_seed(cut, seed)
        cut.events.write_bytes(b"".join(lines[:count]) + b'{"seq": 9, "torn')
        if count:  # the workspace is laid out before the first event
            lay_out(cut.workspace, GELU, seed=read_seed(cut))
        check_opening(cut, resume_episode(cut, backend=backend, listener=SilentListener()))


def test_the_runs_own_seed_wins(tmp_path: Path, earlier: Path) -> None:
    folder = make_folder(tmp_path)
    assert read_seed(folder) is None
    assert keep_seed(folder, None) is None
    kept = keep_seed(folder, Seed(earlier, NOTES))
    assert kept == Seed(folder.seed, NOTES) == keep_seed(folder, Seed(None, "another"))
    assert sorted(path.name for path in folder.seed.rglob("*") if path.is_file()) == ["a.cpp", "model_new.py"]


def test_words_alone_are_a_seed(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    assert keep_seed(folder, Seed(None, NOTES)) == Seed(None, NOTES)


def test_a_folder_without_a_submission_is_no_seed(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with pytest.raises(ConfigError, match="cannot be a seed"):
        keep_seed(folder, Seed(folder.logs, NOTES))
    assert read_seed(folder) is None
