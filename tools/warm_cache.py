"""Fills a trusted cache: precompiled header, binding.o and objects for build.py, a task's torch.compile cache.

`python -I warm_cache.py --out DIR --target cpu|cuda`, with `{"model_py": "…"}` on stdin where a baseline is wanted.
Run it only where no submission has been: what it writes is taken over by judges without a further check. A submission's
sources take two runs with `--workspace DIR --cache DIR`, because a source may subvert the compiler that reads it: with
`--names` nothing is compiled, and the report says under which name each object of the slow sources is looked for;
without it they are compiled into `--out`, from where a host takes the file of that name and no other. Everything is
made below a temporary name and renamed, so that a reader sees a whole entry or none. The
baseline's folder DIR/baselines/<sha256 of model_py> is a TORCHINDUCTOR_CACHE_DIR; torch writes into such a folder, so
use a copy of it.
"""

import argparse
import contextlib
import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build
from building import bounded
from building.sources import SourceError, Sources, read_sources
from building.toolchain import Target, Toolchain, ToolchainError, find_toolchain
from referee import confine, signing
from taskrun import child

COMPILE_TIMEOUT_S: Final = 300.0
BASELINE_TIMEOUT_S: Final = 480.0


class _CannotWarm(Exception):
    """One part of the cache could not be made; `code` and `detail` go into the report."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def warm(out: Path, *, target: Target, model_py: str | None = None, arch: str | None = None) -> dict[str, Any]:
    """Makes what is missing below `out` and returns the report; parts that are there already are left alone."""

    def work(report: dict[str, Any]) -> None:
        toolchain = find_toolchain(target, arch=arch)
        if build.warm_folder(out, toolchain) is None:
            _make(out / "build" / build.warm_key(toolchain), lambda folder: _compile(folder, toolchain))
        if model_py is not None:
            name = hashlib.sha256(model_py.encode()).hexdigest()
            if not (out / "baselines" / name).is_dir():
                _make(out / "baselines" / name, lambda folder: _baseline(folder, model_py, target))

    return _reported(work)


def submitted(
    workspace: Path, cache: Path, *, target: Target, out: Path | None, arch: str | None = None
) -> dict[str, Any]:
    """Names of the objects that a warmed cache lacks (`out` None), or these objects, compiled into the folder `out`."""

    def work(report: dict[str, Any]) -> None:
        with contextlib.suppress(SourceError, build.Failed):  # the judge's to say
            sources = read_sources(workspace, target=target)
            toolchain = find_toolchain(target, arch=arch)
            entry = build.warm_folder(cache, toolchain)
            if entry is None:
                return
            report["entry"] = entry.name
            report["objects"] = _missing(sources, toolchain, entry)
            if out is not None and report["objects"]:
                _objects(sources, toolchain, entry, out)

    return _reported(work)


def _reported(work: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    started = time.monotonic()
    report: dict[str, Any] = {"schema_version": 1, "tool": "warm_cache", "status": "warm", "reasons": []}
    try:
        work(report)
    except _CannotWarm as error:
        report |= {"status": "error", "reasons": [{"code": error.code, "detail": error.detail}]}
    except ToolchainError as error:
        report |= {"status": "error", "reasons": [{"code": "build.toolchain", "detail": str(error)}]}
    except OSError as error:
        report |= {"status": "error", "reasons": [{"code": "build.io", "detail": str(error)}]}
    report["seconds"] = round(time.monotonic() - started, 3)
    return report


def _missing(sources: Sources, toolchain: Toolchain, entry: Path) -> dict[str, str]:
    """Source -> name of its object, for those that take long to compile and are not in the cache."""
    slow = {f"kernels/{name}": text for name, text in sources.sources.items() if build.speaks_torch(text)}
    keys = {name: build.object_key(name, text, sources, toolchain) for name, text in slow.items()}
    return {name: key for name, key in keys.items() if not (entry / build.OBJECTS / key).is_file()}


def _make(final: Path, fill: Callable[[Path], None]) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=final.parent))
    try:
        fill(temporary)
        temporary.chmod(0o755)
        try:
            temporary.rename(final)
        except OSError:
            if not final.is_dir():  # a folder there means that somebody made the same meanwhile
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _compile(folder: Path, toolchain: Toolchain) -> None:
    build.lay_out(folder, Sources())
    environment = build.compiler_environment(folder, toolchain)
    header = toolchain.cxx_command("prelude.h", "prelude.h.gch", prelude=None)
    at = header.index("-c")
    header[at : at + 2] = ["-x", "c++-header", "prelude.h"]
    commands = {"header": header, "binding": toolchain.cxx_command("binding.cpp", "binding.o", prelude=None)}

    def one(name: str) -> bounded.Finished:
        return bounded.run(
            commands[name],
            cwd=folder,
            env=environment,
            log=folder / f"{name}.log",
            timeout_s=COMPILE_TIMEOUT_S,
            memory_bytes=build.MEMORY_BYTES[toolchain.target],
        )

    with ThreadPoolExecutor(max_workers=2) as pool:
        finished = list(pool.map(one, commands))
    for done in finished:
        if done.status != "ok":
            raise _CannotWarm("build.warm_failed", f"compiling torch's headers: {done.status}: {done.output[-500:]}")
    shutil.rmtree(folder / "tmp", ignore_errors=True)


def _objects(sources: Sources, toolchain: Toolchain, entry: Path, out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="objects-") as temporary:
        work = Path(temporary)
        build.lay_out(work, sources)
        job = build.Job(
            sources=sources,
            toolchain=toolchain,
            warm=entry,
            own=out,
            jobs=build.default_jobs(),
            timeout_s=build.COMPILE_TIMEOUT_S,
        )
        build.compile_all(work, job)


def _baseline(folder: Path, model_py: str, target: Target) -> None:
    extra = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    outcome = child.run("compile", model_py, target=target, timeout_s=BASELINE_TIMEOUT_S, extra_env=extra)
    if outcome.status != "ok":
        raise _CannotWarm(outcome.code, outcome.detail)


def main() -> int:
    parser = argparse.ArgumentParser(description="Warm the caches of build.py and of a task's torch.compile baseline.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--workspace", type=Path, help="a submission whose objects are wanted")
    parser.add_argument("--cache", type=Path, help="the warmed cache that lacks them")
    parser.add_argument("--names", action="store_true", help="say how they are called, and compile nothing")
    parser.add_argument("--arch", help="GPU architecture such as sm_90 (default: the device's)")
    flags = parser.parse_args()
    # The report must be the only thing on stdout, whatever a library prints.
    confine.set_dumpable(False)  # the task runs below with the same uid, and must not find the key here
    stdout, key = signing.take_stdout(), b""
    if flags.workspace is not None:
        if flags.cache is None:
            parser.error("--workspace needs --cache")
        out = None if flags.names else flags.out
        report = submitted(flags.workspace, flags.cache, target=flags.target, out=out, arch=flags.arch)
    else:
        text, key = child.asked_on_stdin(required=False)
        report = warm(flags.out.resolve(), target=flags.target, model_py=text, arch=flags.arch)
    signing.write(stdout, report, key=key)
    return 0


if __name__ == "__main__":
    sys.exit(main())
