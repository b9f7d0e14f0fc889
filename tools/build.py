"""Builds a workspace's kernels/ into one extension module: `python -I build.py --workspace DIR --target cpu|cuda`.

Covered: sources are read as regular files only and compiled in a clean folder with a fixed environment and our own
binding; a shipped library, object or build file is never used; compilers are bounded in time, memory and output; a
build is taken over whole by a rename, so that there is no lock to go stale. Not covered: what the code does when it
runs. A finished build below the build folder is trusted by whoever passes reuse=True: a judge passes False.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from building import bounded, diagnostics
from building.sources import SourceError, Sources, read_sources
from building.toolchain import BINDING, SEARCH_PATH, Target, Toolchain, ToolchainError, find_toolchain

COMPILE_TIMEOUT_S: Final = 240.0
LOG_TAIL: Final = 8000
DIAGNOSTICS: Final = "diagnostics.json"
COMPUTED_INCLUDE: Final = re.compile(rb"#\s*include\s*[^\"<\s]")
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


class _Failed(Exception):
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
    torch and flags match. `build_root` is where builds are kept (default $TMPDIR/agent-build); with `reuse` an
    identical earlier build there is returned as it is, and objects of unchanged sources are taken over.
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
            toolchain = find_toolchain(target, arch=arch)
            report["sha256"] = content_sha256(sources, toolchain)
            root = build_root or _default_root()
            warm = warm_folder(cache, toolchain)
            objects = root / "objects" if reuse else None
            job = _Job(sources, toolchain, warm, objects, jobs or _default_jobs(), timeout_s)
            report |= _built(job, root / report["sha256"], reuse=reuse)
        else:
            report["status"] = "no_sources"
            text = f"kernels/ holds no source for target {target}"
            report["reasons"] = [{"code": "build.no_sources", "detail": text}]
    except SourceError as error:
        report |= {"status": "failed", "reasons": [{"code": error.code, "detail": error.detail}]}
    except _Failed as error:
        report |= {"status": "failed", "reasons": error.reasons, "log_tail": error.output[-LOG_TAIL:]}
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


def compiler_environment(folder: Path) -> dict[str, str]:
    """The whole environment of a compiler process; nothing is inherited."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {"PATH": SEARCH_PATH, "HOME": str(temporary), "TMPDIR": str(temporary), "LC_ALL": "C"}


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
        "log_tail": "",
    }


def _ignored(path: str, why: str) -> dict[str, Any]:
    return {"file": path, "line": 0, "column": 0, "severity": "note", "message": why}


def _check_bindings(sources: Sources) -> None:
    texts = list(sources.sources.values()) + list(sources.headers.values())
    if any(b"PYBIND11_MODULE" in text for text in texts):
        raise _Failed([{"code": "build.own_module", "detail": diagnostics.OWN_MODULE}])
    if not any(b"REGISTER_BINDING" in text for text in texts):
        detail = (
            'no source registers a function: add a *_binding.cpp with #include "../binding_registry.h" and '
            "REGISTER_BINDING(name, register_fn), where register_fn takes pybind11::module& and calls m.def"
        )
        raise _Failed([{"code": "build.no_binding", "detail": detail}])


def _default_root() -> Path:
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
class _Job:
    """What one build works with; `objects` is where object files of earlier builds lie, None where none may be used."""

    sources: Sources
    toolchain: Toolchain
    warm: Path | None
    objects: Path | None
    jobs: int
    timeout_s: float

    @property
    def texts(self) -> list[bytes]:
        return [*self.sources.sources.values(), *self.sources.headers.values()]

    def run(self, command: list[str], *, work: Path, log: str) -> bounded.Finished:
        environment = compiler_environment(work)
        memory = MEMORY_BYTES[self.toolchain.target]
        return bounded.run(
            command, cwd=work, env=environment, log=work / log, timeout_s=self.timeout_s, memory_bytes=memory
        )


def _built(job: _Job, final: Path, *, reuse: bool) -> dict[str, Any]:
    module = final / f"{job.toolchain.module}.so"
    kept = final / DIAGNOSTICS
    if reuse and module.is_file() and kept.is_file():
        entries = json.loads(kept.read_text(encoding="utf-8"))
        return {"status": "built", "module": str(module), "cached": True, "diagnostics": entries}
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{final.name[:16]}-", dir=final.parent))
    try:
        lay_out(work, job.sources)
        output = _compile_and_link(work, job)
        entries = diagnostics.parse(output)
        made = _take_over(work, final, job.toolchain.module, entries)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {"status": "built", "module": str(made), "diagnostics": entries, "log_tail": output[-LOG_TAIL:]}


def _default_jobs() -> int:
    asked = os.environ.get("MAX_JOBS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else len(os.sched_getaffinity(0))


def _compile_and_link(work: Path, job: _Job) -> str:
    names = [f"kernels/{name}" for name in job.sources.sources] + ([] if job.warm else ["binding.cpp"])
    with ThreadPoolExecutor(max_workers=job.jobs) as pool:
        finished = list(pool.map(lambda name: _object(work, name, job), names))
    output = "".join(done.output for done in finished)
    reasons = [r for name, done in zip(names, finished, strict=True) for r in _compile_reasons(name, done, job)]
    if reasons:
        raise _Failed(reasons, output)
    objects = [f"{name}.o" for name in names] + ([str(job.warm / "binding.o")] if job.warm else [])
    command = job.toolchain.link_command(objects, f"{job.toolchain.module}.so", texts=job.texts)
    linked = job.run(command, work=work, log="link.log")
    if linked.status != "ok" or diagnostics.unresolved_symbols(linked.output):
        bound = _bound_reason("the link", linked, job.timeout_s)
        explained = bound or diagnostics.explain_link(linked.output, module=job.toolchain.module)
        raise _Failed(explained, output + linked.output)
    return output


def _object(work: Path, name: str, job: _Job) -> bounded.Finished:
    """Compiles one source to `name`.o, or takes the object of an earlier build of the same text and headers."""
    text = (work / name).read_bytes()
    kept = job.objects / _object_name(name, text, job) if job.objects else None
    if kept is not None and _copy(kept, work / f"{name}.o"):
        return bounded.Finished("ok", 0, "", 0.0)
    finished = job.run(_command(name, text, job), work=work, log=f"{name}.log")
    # A source with warnings is compiled again next time, so that they are reported again.
    if kept is not None and finished.status == "ok" and not finished.output:
        _keep(work / f"{name}.o", kept)
    return finished


def _object_name(name: str, text: bytes, job: _Job) -> str:
    digest = hashlib.sha256(job.toolchain.identity.encode())
    headers = _headers_of(text, job.sources.headers)
    for part in (name.encode(), text, *(piece for header in headers for piece in (header.encode(), headers[header]))):
        digest.update(b"%d\0" % len(part) + part)
    for path in binding_files():
        digest.update(path.read_bytes())
    return digest.hexdigest() + ".o"


def _headers_of(text: bytes, headers: dict[str, bytes]) -> dict[str, bytes]:
    """The headers that `text` may read: named in it or in one of them; all where a name is computed."""
    named: dict[str, bytes] = {}
    texts = [text]
    while texts:
        current = texts.pop()
        if COMPUTED_INCLUDE.search(current):
            return headers
        new = {name: data for name, data in headers.items() if name not in named and name.encode() in current}
        named |= new
        texts += new.values()
    return dict(sorted(named.items()))


def _copy(source: Path, destination: Path) -> bool:
    try:
        shutil.copyfile(source, destination, follow_symlinks=False)
    except OSError:
        return False
    return destination.is_file() and not destination.is_symlink()


def _keep(made: Path, kept: Path) -> None:
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        kept.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=kept.parent)
        os.close(handle)
        shutil.copyfile(made, temporary)
        Path(temporary).rename(kept)


def _command(name: str, text: bytes, job: _Job) -> list[str]:
    if name.endswith(".cu"):
        return job.toolchain.nvcc_command(name, f"{name}.o")
    speaks_torch = any(word in text for word in (b"torch/", b"ATen/", b"c10/", b"pybind11/", b"binding_registry.h"))
    prelude = str(job.warm / "prelude.h") if job.warm else "prelude.h"
    return job.toolchain.cxx_command(name, f"{name}.o", prelude=prelude if speaks_torch else None)


def warm_folder(cache: Path | None, toolchain: Toolchain) -> Path | None:
    """The folder of `cache` that fits `toolchain`, where it is there and complete."""
    if cache is None:
        return None
    folder = cache / "build" / warm_key(toolchain)
    return folder if all((folder / name).is_file() for name in WARM_FILES) else None


def _compile_reasons(name: str, finished: bounded.Finished, job: _Job) -> list[dict[str, str]]:
    if finished.status == "ok":
        return []
    bound = _bound_reason(name, finished, job.timeout_s)
    return bound or diagnostics.explain_compile(name, diagnostics.parse(finished.output), finished.output)


def _bound_reason(what: str, finished: bounded.Finished, limit_s: float) -> list[dict[str, str]]:
    if finished.status not in BOUND_REASONS:
        return []
    code, text = BOUND_REASONS[finished.status]
    return [{"code": code, "detail": f"{what} {text.format(limit=limit_s)}"}]


def _take_over(work: Path, final: Path, module: str, entries: list[dict[str, Any]]) -> Path:
    """Renames the module into its place; where something is there already, the new build stays beside it."""
    ready = Path(tempfile.mkdtemp(prefix=f".{final.name[:16]}-ready-", dir=final.parent))
    name = f"{module}.so"
    shutil.move(work / name, ready / name)
    (ready / DIAGNOSTICS).write_text(json.dumps(entries), encoding="utf-8")
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
