"""Objects of a submission's slow sources for the trusted cache: made while a model thinks, taken by its judge later.

Covers: compiling runs no code of a submission, but a source may subvert its compiler. So each source is compiled in a
sandbox of its own that shows it nothing but headers, with one writable folder; what the object is called is asked there
before, when nothing of the source has been read by a compiler, and only a file of that name is taken. Whatever a source
does, it can do to its own object alone, as in the judge's own build. Not covered: two sources of one submission
that include each other are left to the judge.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.config import Config
from agent.errors import AgentError
from agent.judging.sandboxes import Opened, judging_sandbox
from agent.judging.submission import prepare_workspace
from agent.judging.target import resolve_target
from agent.judging.tool_runs import Target, run_objects
from agent.sandbox.base import Mount
from agent.sandbox.mounts import remove_tree
from agent.sandbox.snapshot import SnapshotError

OUTBOX: Final = "/opt/agent-outbox"
SOURCES: Final = (".cpp", ".cu")
TORCH_WORDS: Final = (b"torch/", b"ATen/", b"c10/", b"pybind11/", b"binding_registry.h")
"""What a source that takes long to compile speaks of; the tool decides, this spares it the others."""
ENTRY: Final = re.compile(r"[0-9a-f]{32}")
OBJECT: Final = re.compile(r"[0-9a-f]{64}\.o")
MOST_BYTES: Final = 64 << 20
MOST_OBJECTS: Final = 4000


def keep_objects(
    config: Config, submission: Path, cache: Path, *, opened: Opened, leave: Callable[[], bool]
) -> list[str]:
    """Compile what the cache lacks of a submission; the names of the objects that it has now. Never raises for what
    cannot be compiled, or not now: a judge compiles what is missing.
    """
    target = resolve_target(config.judge)
    kept: list[str] = []
    scratch = Path(tempfile.mkdtemp(prefix="agent-objects-"))
    try:
        copy = prepare_workspace(submission, scratch / "submission")
        for source in _slow(copy / "kernels", target):
            if leave():
                break
            alone = _alone(copy / "kernels", source, scratch / source.name)
            kept += _compiled(config, target, alone, cache, opened)
    except (AgentError, SnapshotError, OSError):
        pass
    finally:
        remove_tree(scratch)
    return kept


def _slow(kernels: Path, target: Target) -> list[Path]:
    suffixes = SOURCES if target == "cuda" else SOURCES[:1]
    found = [path for path in sorted(kernels.glob("*")) if path.suffix in suffixes and path.is_file()]
    return [path for path in found if any(word in path.read_bytes() for word in TORCH_WORDS)]


def _alone(kernels: Path, source: Path, into: Path) -> Path:
    """A workspace with this source and what is no source."""
    (into / "kernels").mkdir(parents=True)
    (into / "out").mkdir()
    for path in kernels.iterdir():
        if path.is_file() and (path == source or path.suffix not in SOURCES):
            shutil.copyfile(path, into / "kernels" / path.name)
    for path in (into, into / "kernels", into / "out"):
        path.chmod(0o755)
    return into


def _compiled(config: Config, target: Target, alone: Path, cache: Path, opened: Opened) -> list[str]:
    limit_s = config.limits.tool_timeout_s
    (alone / "workspace").mkdir()
    (alone / "kernels").rename(alone / "workspace" / "kernels")
    (alone / "workspace").chmod(0o755)
    with judging_sandbox(
        config,
        target=target,
        workspace=alone / "workspace",
        cache=cache,
        opened=opened,
        mounts=(Mount(alone / "out", OUTBOX, read_only=False),),
    ) as sandbox:
        named = run_objects(sandbox, target=target, timeout_s=limit_s, out=None)
        if not named.objects:
            return []
        run_objects(sandbox, target=target, timeout_s=limit_s, out=OUTBOX)
    return [name for name in named.objects.values() if _taken(alone / "out", name, cache, named.entry)]


def _taken(outbox: Path, name: str, cache: Path, entry: str) -> bool:
    """Move one object, and what the compiler said about it, into the cache."""
    if not OBJECT.fullmatch(name) or not ENTRY.fullmatch(entry) or not (cache / "build" / entry).is_dir():
        return False
    folder = cache / "build" / entry / "objects"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    _prune(folder)
    log = name.removesuffix(".o") + ".log"
    if (outbox / log).exists():
        _copy(outbox / log, folder / log)
    return _copy(outbox / name, folder / name)


def _prune(folder: Path) -> None:
    """Those that were made longest ago make room."""
    found = sorted(folder.glob("*.o"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[MOST_OBJECTS:]:
        path.unlink(missing_ok=True)
        path.with_suffix(".log").unlink(missing_ok=True)


def _copy(source: Path, final: Path) -> bool:
    """A regular file only; it appears whole."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(handle, "rb") as file:
        details = os.fstat(handle)
        if not stat.S_ISREG(details.st_mode) or details.st_size > MOST_BYTES:
            return False
        data = file.read(MOST_BYTES)
    with tempfile.NamedTemporaryFile(dir=final.parent, delete=False) as fresh:
        fresh.write(data)
    Path(fresh.name).chmod(0o644)
    Path(fresh.name).rename(final)
    return True
