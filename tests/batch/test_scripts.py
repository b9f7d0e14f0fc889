"""Which script a sample gets."""

from pathlib import Path

import pytest
from plans import CONFIG, make_task, write_script

from agent.assets import asset
from agent.batch.scripts import Scripts
from agent.config import Config, load_config
from agent.errors import ConfigError
from agent.tasks.task import load_task


def config_for(script: Path) -> Config:
    return load_config(flags={"backend.script": str(script), "sandbox.kind": "bubblewrap", "judge.target": "cpu"})


def chosen(scripts: Scripts, name: str, sample: int) -> str:
    return scripts.config_for(make_task(name), sample).backend.script


def test_one_script_is_for_all(tmp_path: Path) -> None:
    path = write_script(tmp_path / "s.md", "true")
    scripts = Scripts(config_for(path))
    scripts.check((make_task("a"), make_task("b")), 3)
    assert chosen(scripts, "a", 2) == str(path)


def test_a_folder_has_one_per_sample_per_task_or_a_run(tmp_path: Path) -> None:
    write_script(tmp_path / "a" / "0.md", "true")
    write_script(tmp_path / "a.md", "true")
    write_script(tmp_path / "level1" / "1_x" / "turns.md", "true")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "events.jsonl").write_text("")
    scripts = Scripts(config_for(tmp_path))
    scripts.check((make_task("a"), make_task("level1/1_x"), make_task("c")), 2)
    assert chosen(scripts, "a", 0) == str(tmp_path / "a" / "0.md")
    assert chosen(scripts, "a", 1) == str(tmp_path / "a.md")
    assert chosen(scripts, "level1/1_x", 1) == str(tmp_path / "level1" / "1_x" / "turns.md")
    assert chosen(scripts, "c", 0) == str(tmp_path / "c" / "events.jsonl")


def test_tasks_without_a_script_are_counted(tmp_path: Path) -> None:
    write_script(tmp_path / "scripts" / "a.md", "true")
    write_script(tmp_path / "outside.md", "true")
    scripts = Scripts(config_for(tmp_path / "scripts"))
    tasks = tuple(make_task(name) for name in ("a", "b", "../outside"))
    with pytest.raises(ConfigError, match=r"no script for 2 of 3 tasks: b, \.\./outside"):
        scripts.check(tasks, 1)
    with pytest.raises(ConfigError, match="does not exist"):
        Scripts(config_for(tmp_path / "missing"))


def test_without_a_model_what_ships_is_replayed() -> None:
    scripts = Scripts(CONFIG)
    shipped = load_task(asset("examples") / "mlp-epilogue" / "model.py")
    scripts.check((shipped,), 1)
    assert scripts.config_for(shipped, 0).backend.script.endswith("mlp-epilogue/turns.md")
    scripts.check((shipped, make_task("a")), 1)
    assert not scripts.config_for(make_task("a"), 0).backend.script, "the built-in policy acts where nothing ships"


def test_an_explicit_replay_needs_a_script_for_every_task() -> None:
    scripts = Scripts(load_config(settings=["backend.name=replay", "sandbox.kind=bubblewrap"]))
    shipped = load_task(asset("examples") / "mlp-epilogue" / "model.py")
    with pytest.raises(ConfigError, match="nothing ships for 1 of 2 tasks: a"):
        scripts.check((shipped, make_task("a")), 1)


def test_a_model_needs_no_script() -> None:
    config = load_config(settings=["backend.model=m", "sandbox.kind=bubblewrap"])
    scripts = Scripts(config)
    scripts.check((make_task("a"),), 1)
    assert scripts.config_for(make_task("a"), 0) == config


def test_what_ships_for_another_target_is_the_built_in_policys() -> None:
    shipped = load_task(asset("examples") / "cuda-row-softmax" / "model.py")
    taken = [
        Scripts(load_config(flags={"judge.target": target})).config_for(shipped, 0).backend
        for target in ("cpu", "cuda")
    ]
    assert [backend.name for backend in taken] == ["builtin", "replay"]
    assert taken[1].script.endswith("cuda-row-softmax/turns.md")
