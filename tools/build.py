"""Builds a workspace's kernels/ into one extension module: `python -I build.py --workspace DIR --target cpu|cuda`.

Covered: sources are read as regular files only and compiled in a clean folder with a fixed environment and our own
binding; a shipped library, object or build file is never used; compilers are bounded in time, memory and output; a
build is taken over whole by a rename, so that there is no lock to go stale. Not covered: what the code does when it
runs. A finished build below the build folder is trusted by whoever passes reuse=True: a judge passes False. Objects
of a warmed cache are trusted always: only warm_cache.py writes them, where no submission has run.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from building import bounded, diagnostics, objects, resources, room
from building.sources import SourceError, Sources, read_sources
from building.toolchain import BINDING, Target, Toolchain, ToolchainError, find_toolchain

COMPILE_TIMEOUT_S: Final = 240.0
LOG_TAIL: Final = 8000
KEPT: Final = "said.json"
KEPT_IN: Final = "AGENT_BUILDS"
OBJECTS: Final = "objects"
TORCH_WORDS: Final = (b"torch/", b"ATen/", b"c10/", b"pybind11/", b"binding_registry.h")
WARM_FILES: Final = ("prelude.h", "prelude.h.gch", "binding.o")
# g++ with a precompiled header of torch maps about 1 GB; nvcc runs several programs of which each has its own limit.
MEMORY_BYTES: Final = {"cpu": 6 << 30, "cuda": 24 << 30}
BOUND_REASONS: Final = {
    "timeout": (
        "build.timeout",
        "took longer than {limit:.0f} s to compile: endless templates, or an include that never ends?",
    ),
    "memory": (
        "build.memory",
        "made the compiler run out of memory: endless templates, or an include that never ends?",
    ),
    "file_size": ("build.output_size", "made the compiler write more than its file size limit"),
}


class Failed(Exception):
    """The submission does not build; carries what the report needs."""

    def __init__(self, reasons: list[dict[str, str]], output: str = "") -> None:
        super().__init__(str(reasons))
        self.reasons = reasons
        self.output = output


def build(
    workspace: Path,
    *,
    target: Target,
    cache: Path | None = None,
    arch: str | None = None,
    build_root: Path | None = None,
    reuse: bool = True,
    jobs: int | None = None,
    timeout_s: float = COMPILE_TIMEOUT_S,
) -> dict[str, Any]:
    """Builds `workspace`/kernels and returns a BuildReport as a dict; never raises for what a submission contains.

    `cache` is a warmed cache folder (warm_cache.py): its precompiled header and binding.o are used where compiler,
    torch and flags match. `build_root` is where builds are kept (default $AGENT_BUILDS, else $TMPDIR/agent-build); with
    `reuse` an identical earlier build there is returned as it is, and objects of unchanged sources are taken over.
    `timeout_s` bounds each compiler process.
    """
    started = time.monotonic()
    report = _report(target)
    ignored: list[dict[str, Any]] = []
    try:
        sources = read_sources(workspace, target=target)
        report["sources"] = [f"kernels/{name}" for name in sources.sources]
        ignored = [_ignored(path, why) for path, why in sources.ignored]
        if sources.sources:
            _check_bindings(sources)
            root = build_root or _default_root()
            room.check(_existing(root))
            toolchain = find_toolchain(target, arch=arch)
            report["sha256"] = content_sha256(sources, toolchain)
            warm = warm_folder(cache, toolchain)
            own = root / OBJECTS if reuse else None
            job = Job(sources, toolchain, warm, own, jobs or default_jobs(), timeout_s)
            report |= _built(job, root / report["sha256"], reuse=reuse)
        else:
            report["status"] = "no_sources"
            text = f"kernels/ holds no source for target {target}"
            report["reasons"] = [{"code": "build.no_sources", "detail": text}]
    except SourceError as error:
        report |= {"status": "failed", "reasons": [{"code": error.code, "detail": error.detail}]}
    except Failed as error:
        report |= {"status": "failed", "reasons": error.reasons, "log_tail": _tail(error.output)}
        report["diagnostics"] = diagnostics.parse(error.output)
    except ToolchainError as error:
        report |= {"status": "error", "reasons": [{"code": "build.toolchain", "detail": str(error)}]}
    except OSError as error:
        report |= {"status": "error", "reasons": [{"code": "build.io", "detail": str(error)}]}
    report["diagnostics"] += ignored
    report["seconds"] = round(time.monotonic() - started, 3)
    return report


def content_sha256(sources: Sources, toolchain: Toolchain) -> str:
    """Hash over what decides the module's content: sources, our binding, flags, compiler and torch versions."""
    digest = hashlib.sha256(toolchain.identity.encode())
    parts = {**sources.sources, **sources.headers}
    for path in binding_files():
        parts[f"../{path.relative_to(BINDING)}"] = path.read_bytes()
    for name in sorted(parts):
        digest.update(f"\0{name}\0{len(parts[name])}\0".encode() + parts[name])
    return digest.hexdigest()


def binding_files() -> list[Path]:
    """The files that a build brings along, below tools/binding."""
    return sorted(path for path in BINDING.rglob("*") if path.is_file())


def warm_key(toolchain: Toolchain) -> str:
    """Name of the folder of a warmed cache that fits this toolchain and our binding files."""
    digest = hashlib.sha256(toolchain.identity.encode())
    for path in binding_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def lay_out(folder: Path, sources: Sources) -> None:
    """Fills a clean build folder: our binding files at its top, the submission's files in kernels/."""
    for path in binding_files():
        copy = folder / path.relative_to(BINDING)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (folder / "kernels").mkdir()
    for name, data in {**sources.sources, **sources.headers}.items():
        (folder / "kernels" / name).write_bytes(data)


def compiler_environment(folder: Path, toolchain: Toolchain) -> dict[str, str]:
    """The whole environment of a compiler process; nothing is inherited."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {"PATH": toolchain.search_path, "HOME": str(temporary), "TMPDIR": str(temporary), "LC_ALL": "C"}


def _report(target: Target) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "reasons": [],
        "module": None,
        "cached": False,
        "seconds": 0.0,
        "sources": [],
        "sha256": "",
    }
    return {
        "schema_version": 1,
        "tool": "build",
        "status": "error",
        "target": target,
        **empty,
        "diagnostics": [],
        "kernels": [],
        "objects": {"compiled": 0, "taken": 0},
        "log_tail": "",
    }


def _ignored(path: str, why: str) -> dict[str, Any]:
    return {"file": path, "line": 0, "column": 0, "severity": "note", "message": why}


def _check_bindings(sources: Sources) -> None:
    texts = list(sources.sources.values()) + list(sources.headers.values())
    if any(b"PYBIND11_MODULE" in text for text in texts):
        raise Failed([{"code": "build.own_module", "detail": diagnostics.OWN_MODULE}])
    if not any(word in text for text in texts for word in (b"REGISTER_BINDING", b"REGISTER_LAUNCHER")):
        detail = (
            'no source registers a function: either #include "../launcher.h" and REGISTER_LAUNCHER(fn) for a function '
            'of pointers and numbers, or a *_binding.cpp with #include "../binding_registry.h" and '
            "REGISTER_BINDING(name, register_fn), where register_fn takes pybind11::module& and calls m.def"
        )
        raise Failed([{"code": "build.no_binding", "detail": detail}])


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one around it that is there."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _default_root() -> Path:
    if kept := os.environ.get(KEPT_IN):  # the host's, for several sandboxes of one episode
        return Path(kept)
    root = Path(tempfile.gettempdir()) / "agent-build"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        details = root.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="agent-build-"))
    # Somebody else's folder (or a link to one) could hand us a module of theirs.
    mine = details.st_uid == os.getuid() and not root.is_symlink() and root.is_dir()
    return root if mine else Path(tempfile.mkdtemp(prefix="agent-build-"))


@dataclass(frozen=True)
class Job:
    """What one build works with; `own` is where object files of earlier builds lie, None where none may be used."""

    sources: Sources
    toolchain: Toolchain
    warm: Path | None
    own: Path | None
    jobs: int
    timeout_s: float

    @property
    def texts(self) -> list[bytes]:
        return [*self.sources.sources.values(), *self.sources.headers.values()]

    @property
    def trusted(self) -> Path | None:
        return self.warm / OBJECTS if self.warm else None

    def run(self, command: list[str], *, work: Path, log: str) -> bounded.Finished:
        environment = compiler_environment(work, self.toolchain)
        memory = MEMORY_BYTES[self.toolchain.target]
        return bounded.run(
            command, cwd=work, env=environment, log=work / log, timeout_s=self.timeout_s, memory_bytes=memory
        )


@dataclass(frozen=True)
class Compiled:
    """One source's object: what the compiler said and whether it ran now."""

    name: str
    finished: bounded.Finished
    taken: bool


def _built(job: Job, final: Path, *, reuse: bool) -> dict[str, Any]:
    module = final / f"{job.toolchain.module}.so"
    kept = final / KEPT
    if reuse and module.is_file() and kept.is_file():
        said = json.loads(kept.read_text(encoding="utf-8"))
        return {"status": "built", "module": str(module), "cached": True, **said}
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{final.name[:16]}-", dir=final.parent))
    try:
        lay_out(work, job.sources)
        made = compile_all(work, job)
        output = "".join(one.finished.output for one in made)
        _link(work, made, job)
        said = {"diagnostics": diagnostics.parse(output), "kernels": _kernels(made, job.toolchain)}
        place = _take_over(work, final, job.toolchain.module, said)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    taken = sum(one.taken for one in made)
    counts = {"compiled": len(made) - taken, "taken": taken}
    return {"status": "built", "module": str(place), **said, "objects": counts, "log_tail": _tail(output)}


def _tail(output: str) -> str:
    return resources.without(output)[-LOG_TAIL:]


def _kernels(made: list[Compiled], toolchain: Toolchain) -> list[dict[str, Any]]:
    entries = [entry for one in made for entry in resources.parse(one.finished.output, source=one.name)]
    resources.demangle(entries, path=toolchain.search_path)
    return entries


def default_jobs() -> int:
    asked = os.environ.get("MAX_JOBS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else len(os.sched_getaffinity(0))


def compile_all(work: Path, job: Job) -> list[Compiled]:
    """Compiles what no cache holds, side by side, those first that take longest. Raises Failed."""
    sources = sorted(job.sources.sources.items(), key=lambda item: not speaks_torch(item[1]))
    names = [f"kernels/{name}" for name, _ in sources] + ([] if job.warm else ["binding.cpp"])
    with ThreadPoolExecutor(max_workers=job.jobs) as pool:
        made = list(pool.map(lambda name: _object(work, name, job), names))
    if any("Unsupported gpu architecture" in one.finished.output for one in made):
        raise ToolchainError(f"this nvcc cannot compile for sm_{job.toolchain.arch}: a newer CUDA toolkit can")
    reasons = [reason for one in made for reason in _compile_reasons(one.name, one.finished, job)]
    if reasons:
        raise Failed(reasons, "".join(one.finished.output for one in made))
    return made


def _link(work: Path, made: list[Compiled], job: Job) -> None:
    files = [f"{one.name}.o" for one in made] + ([str(job.warm / "binding.o")] if job.warm else [])
    command = job.toolchain.link_command(files, f"{job.toolchain.module}.so", texts=job.texts)
    linked = job.run(command, work=work, log="link.log")
    if linked.status != "ok" or diagnostics.unresolved_symbols(linked.output):
        bound = _bound_reason("the link", linked, job.timeout_s)
        explained = bound or diagnostics.explain_link(linked.output, module=job.toolchain.module)
        raise Failed(explained, "".join(one.finished.output for one in made) + linked.output)


def object_key(name: str, text: bytes, sources: Sources, toolchain: Toolchain) -> str:
    """The object's name; a source may include another source as well as a header."""
    others = {other: data for other, data in sources.sources.items() if f"kernels/{other}" != name}
    readable = {**sources.headers, **others}
    return objects.object_name(name, text, readable, identity=toolchain.identity, binding=binding_files())


def _object(work: Path, name: str, job: Job) -> Compiled:
    """Compiles one source to `name`.o, or takes the object of an earlier build of the same text and headers."""
    text = (work / name).read_bytes()
    key = object_key(name, text, job.sources, job.toolchain)
    for folder in (job.trusted, job.own):
        said = objects.take(folder, key, work / f"{name}.o") if folder else None
        if said is not None:
            return Compiled(name, bounded.Finished("ok", 0, said, 0.0), taken=True)
    finished = job.run(_command(name, text, job), work=work, log=f"{name}.log")
    if job.own is not None and finished.status == "ok":
        objects.keep(work / f"{name}.o", job.own, key, finished.output)
    return Compiled(name, finished, taken=False)


def speaks_torch(text: bytes) -> bool:
    return any(word in text for word in TORCH_WORDS)


def _command(name: str, text: bytes, job: Job) -> list[str]:
    if name.endswith(".cu"):
        return job.toolchain.nvcc_command(name, f"{name}.o")
    prelude = str(job.warm / "prelude.h") if job.warm else "prelude.h"
    return job.toolchain.cxx_command(name, f"{name}.o", prelude=prelude if speaks_torch(text) else None)


def warm_folder(cache: Path | None, toolchain: Toolchain) -> Path | None:
    """The folder of `cache` that fits `toolchain`, where it is there and complete."""
    if cache is None:
        return None
    folder = cache / "build" / warm_key(toolchain)
    return folder if all((folder / name).is_file() for name in WARM_FILES) else None


def _compile_reasons(name: str, finished: bounded.Finished, job: Job) -> list[dict[str, str]]:
    if finished.status == "ok":
        return []
    bound = _bound_reason(name, finished, job.timeout_s)
    return bound or diagnostics.explain_compile(name, diagnostics.parse(finished.output), finished.output)


def _bound_reason(what: str, finished: bounded.Finished, limit_s: float) -> list[dict[str, str]]:
    if finished.status not in BOUND_REASONS:
        return []
    code, text = BOUND_REASONS[finished.status]
    return [{"code": code, "detail": f"{what} {text.format(limit=limit_s)}"}]


def _take_over(work: Path, final: Path, module: str, said: dict[str, Any]) -> Path:
    """Renames the module into its place; where something is there already, the new build stays beside it."""
    ready = Path(tempfile.mkdtemp(prefix=f".{final.name[:16]}-ready-", dir=final.parent))
    name = f"{module}.so"
    shutil.move(work / name, ready / name)
    (ready / KEPT).write_text(json.dumps(said), encoding="utf-8")
    ready.chmod(0o755)
    try:
        ready.rename(final)
    except OSError:  # somebody built the same meanwhile, or planted a folder of that name: ours is whole and stays ours
        return ready / name
    return final / name


def main() -> int:
    parser = argparse.ArgumentParser(description="Build kernels/ into one extension module; prints a report as JSON.")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--cache", type=Path, help="folder filled by warm_cache.py")
    parser.add_argument("--arch", help="GPU architecture such as sm_90 (default: the device's)")
    parser.add_argument("--build-root", type=Path, help="where builds are kept (default $TMPDIR/agent-build)")
    parser.add_argument("--fresh", action="store_true", help="never return an earlier build")
    parser.add_argument("--timeout-s", type=float, default=COMPILE_TIMEOUT_S, help="limit of each compiler process")
    flags = parser.parse_args()
    report = build(
        flags.workspace,
        target=flags.target,
        cache=flags.cache,
        arch=flags.arch,
        build_root=flags.build_root,
        reuse=not flags.fresh,
        timeout_s=flags.timeout_s,
    )
    json.dump(report, sys.stdout)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
