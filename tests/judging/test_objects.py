"""Objects for the trusted cache: made where nothing but their own source can reach them, taken by name alone."""

import uuid
from pathlib import Path

import pytest

from agent.config import load_config
from agent.judging.cache import warm
from agent.judging.objects import _taken, keep_objects
from agent.judging.sandboxes import judging_sandbox
from agent.judging.tool_runs import run_build
from agent.sandbox.base import Sandbox
from agent.sandbox.open import check_bubblewrap
from agent.tasks.task import load_task

GELU = load_task(Path(__file__).parents[1] / "loop" / "gelu" / "model.py")
CONFIG = load_config(settings=["sandbox.kind=bubblewrap", "judge.target=cpu"])
BINDING = """#include "../binding_registry.h"
#include "gain.h"
static double gain() { return GAIN; }
static void registered(pybind11::module& m) { m.def("gain", &gain); }
REGISTER_BINDING(gain, registered);
"""
NAME, ENTRY = "a" * 64 + ".o", "b" * 32


@pytest.mark.bubblewrap
@pytest.mark.torch
def test_what_was_compiled_ahead_is_taken_by_a_judges_build(tmp_path: Path) -> None:
    if not check_bubblewrap(CONFIG.sandbox).usable:
        pytest.skip("bubblewrap cannot be used here")
    kernels = tmp_path / "w" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "k_binding.cpp").write_text(f"// {uuid.uuid4()}\n{BINDING}")
    (kernels / "gain.h").write_text("#define GAIN 2.5\n")
    (kernels / "plain.cpp").write_text("int plain() { return 1; }\n")
    (tmp_path / "w" / "model_new.py").write_text("class ModelNew: pass\n")
    cache, opened = warm(CONFIG, GELU), list[Sandbox]()
    assert keep_objects(CONFIG, tmp_path / "w", cache, opened=opened.append, leave=lambda: True) == []
    names = keep_objects(CONFIG, tmp_path / "w", cache, opened=opened.append, leave=lambda: False)
    assert (len(names), len(opened)) == (1, 1)  # what speaks of torch, alone in its sandbox
    assert keep_objects(CONFIG, tmp_path / "w", cache, opened=opened.append, leave=lambda: False) == []
    with judging_sandbox(CONFIG, target="cpu", workspace=tmp_path / "w", cache=cache) as sandbox:
        report = run_build(sandbox, target="cpu", timeout_s=300)
    assert (report.status, report.objects.taken) == ("built", 1)


def test_only_a_file_of_the_name_that_was_told_before_is_taken(tmp_path: Path) -> None:
    cache, outbox = tmp_path / "cache", tmp_path / "outbox"
    (cache / "build" / ENTRY).mkdir(parents=True)
    outbox.mkdir()
    kept = cache / "build" / ENTRY / "objects"
    (tmp_path / "secret").write_text("of the host")
    (outbox / NAME).symlink_to(tmp_path / "secret")
    (outbox / ("c" * 64 + ".o")).write_text("somebody else's")
    assert not _taken(outbox, NAME, cache, ENTRY)
    assert not _taken(outbox, "../../" + NAME, cache, ENTRY)
    assert not _taken(outbox, NAME, cache, "../" + ENTRY)
    (outbox / NAME).unlink()
    (outbox / NAME).write_bytes(b"its own")
    assert _taken(outbox, NAME, cache, ENTRY)
    assert [path.name for path in kept.iterdir()] == [NAME]
    assert (kept / NAME).read_bytes() == b"its own"
