"""One judgement's processes and folders: started in the order that keeps secrets, ended whatever happens."""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import symbols
from building import device

from referee import freeze, inherited, quota, removal, staging, waiting
from referee.launch import Nursery, Worker, WorkerFailure
from referee.options import Options
from referee.outcome import Rejected, Unjudgeable

if TYPE_CHECKING:  # it imports torch, which this module must not wait for
    from referee.timing import Primer

LOAD_LIMIT_S: Final = 300.0
TASK_LIMIT_S: Final = 120.0
COMPILE_LIMIT_S: Final = 600.0
FILE_BYTES: Final = 4 << 30
SPARE_BYTES: Final = 4 << 30


class Session:
    """Workers of one judgement. `folder` is private to it and removed at the end."""

    def __init__(self, options: Options, *, fresh_build: bool) -> None:
        self.options = options
        self.fresh_build = fresh_build
        self.folder = Path(tempfile.mkdtemp(prefix="judge-"))
        self.threads = quota.threads()
        self.nursery = Nursery(threads=self.threads, target=options.target)
        self.trusted: list[Worker] = []
        self.build_report: dict[str, Any] | None = None
        self.submission_sha256 = ""
        self.filtered: bool | None = None
        self.imports: symbols.Imports | None = None
        self.module: staging.OwnModule | None = None
        self.started = time.monotonic()
        self.marks: dict[str, float] = {}
        self.primer: Primer | None = None
        self.signals = waiting.Signals.of(options)
        self.variables: dict[str, str] = {}
        self._staged = self.folder / "submission"
        self._readied: Worker | None = None
        self._builder: threading.Thread | None = None
        self._capability: str | None = None
        self._trouble: Exception | None = None

    def await_submission(self) -> str:
        """Whoever fills the workspace makes the awaited file last; the tool that it names."""
        while self.primer is not None and not self.primer.is_done() and not self.signals.has_come("submission"):
            time.sleep(waiting.POLL_S)
        self.signals.tell("prepared")
        wanted = str(self.signals.wait("submission").get("tool", ""))
        self.mark("awaited")
        return wanted

    def await_device(self) -> None:
        """Nothing is done on a device before it is ours; what is to be built is built until then."""
        if "device" not in self.options.awaited:
            return
        self.nursery.wait()
        if self._builder is not None:
            self.check_built()  # what does not build needs no device
        self.signals.tell("idle")
        self.variables = waiting.variables(self.signals.wait("device"))
        os.environ.update(self.variables)
        self.mark("device")
        if self._builder is not None and self._capability != _capability(self.options.target):
            self._start_builder()  # compiled for another GPU than the one that it is now

    def begin(self) -> None:
        """Stage the submission and build it meanwhile; building runs no code of it."""
        if self.options.target == "cuda" and not Path("/dev/nvidiactl").exists():
            raise Unjudgeable("task.no_cuda_device", "target cuda needs an NVIDIA GPU, and this machine shows none")
        if not self.options.workspace.is_dir():
            raise Rejected("load.no_model_new", "the workspace is no folder")
        try:
            self.submission_sha256 = staging.stage(self.options.workspace, self._staged)
        except WorkerFailure as failure:
            raise Rejected(failure.kind, failure.detail) from failure
        self._start_builder()

    def _start_builder(self) -> None:
        self._capability = _capability(self.options.target)
        self._builder = threading.Thread(target=self._build, daemon=True)
        self._builder.start()

    def _build(self) -> None:
        import build

        if not (self.options.workspace / "kernels").exists():
            return
        try:
            self.build_report = build.build(
                self.options.workspace,
                target="cuda" if self.options.target == "cuda" else "cpu",
                cache=self.options.cache,
                build_root=self.folder / "build" if self.fresh_build else None,
                reuse=not self.fresh_build,
            )
        except Exception as error:
            self._trouble = error

    def check_built(self) -> None:
        """Waits for the build; raises where it failed."""
        assert self._builder is not None
        self._builder.join()
        self.mark("build")
        if self._trouble is not None:
            raise Unjudgeable("build.tool", f"the build could not run: {self._trouble}")
        report = self.build_report
        if report is None:
            return
        reasons = report["reasons"] or [{"code": "build.failed", "detail": "the build failed"}]
        if report["status"] == "failed":
            raise Rejected(reasons[0]["code"], reasons[0]["detail"])
        if report["status"] == "error":
            raise Unjudgeable(reasons[0]["code"], reasons[0]["detail"])

    def built(self) -> Path | None:
        """The folder with the fresh module, None for a single-file submission."""
        self.check_built()
        report = self.build_report
        if report is None or report["status"] == "no_sources":
            return None
        folder = staging.own_module_folder(report["module"], self.folder / "module")
        # Now, while the file is what the build made of the sources: later the submission can write it.
        self.module = staging.OwnModule.of(folder / Path(report["module"]).name)
        self.imports = symbols.read_imports(self.module.path)
        return folder

    def start_oracle(self, *, seed: int) -> tuple[Worker, dict[str, Any]]:
        worker = self._trusted("oracle")
        reply = worker.call("load_oracle", text=self.options.text, seed=seed, timeout_s=TASK_LIMIT_S)
        worker.check_flags()
        self.mark("oracle")
        return worker, reply.fields

    def start_baseline(self, name: str, *, seed: int, compiled: bool) -> Worker:
        caches = self._warm_caches(name) if compiled else {}
        worker = self._trusted(name, caches)
        worker.call(
            "load_baseline",
            text=self.options.text,
            seed=seed,
            compile=compiled,
            mode=self.options.baseline,
            timeout_s=TASK_LIMIT_S,
        )
        return worker

    def drop_primer(self) -> None:
        """Nothing will be timed: nobody waits for the compiled baseline."""
        if self.primer is not None:
            self.primer.give_up()
            self.primer = None
            # Its compilers have lost the parent that they are known by, and would be taken for the submission's.
            self.nursery.kill_strangers(trusted=self.trusted)

    def start_yardstick(self, state: list[Any]) -> Worker:
        worker = self._trusted("yardstick")
        worker.call("load_allowed", state=state, timeout_s=30.0)
        return worker

    def _trusted(self, name: str, caches: dict[str, str] | None = None) -> Worker:
        worker = self.nursery.fork(name)
        self.trusted.append(worker)
        self._seal(worker, hostile=False, extra=caches or {})
        return worker

    def _warm_caches(self, name: str) -> dict[str, str]:
        """A private copy of the compile cache that was filled where no submission has been."""
        place = self.folder / f"{name}-inductor"
        if self.options.cache is not None:
            warm = self.options.cache / "baselines" / self.options.task_sha256
            if warm.is_dir():
                shutil.copytree(warm, place, symlinks=True)
        place.mkdir(exist_ok=True)
        return {"TORCHINDUCTOR_CACHE_DIR": str(place), "TRITON_CACHE_DIR": str(place / "triton")}

    def ready_submission(self) -> None:
        """The submission's worker, sealed and with its context on the GPU, before there is a submission."""
        worker = self.nursery.fork("submission")
        worker.hostile = True
        self._seal(worker, hostile=True, extra={})
        self._readied = worker

    def start_submission(
        self, *, init: dict[str, Any], init_blob: bytes, seed: int, on_device: bool
    ) -> tuple[Worker, dict[str, Any]]:
        """The submission's worker, loaded. Anything that it started and left behind by then counts against it.

        The compiled baseline has compiled before: its cache folder is within reach of this uid from here on.
        """
        module_folder = self.built()
        if self.primer is not None:
            self.primer.wait()
            self.mark("compiled")
        shutil.rmtree(self.folder / "compile-inductor", ignore_errors=True)
        worker, self._readied = self._readied, None
        assert worker is not None
        reply = worker.call(
            "load_submission",
            folder=str(self._staged),
            module_folder=None if module_folder is None else str(module_folder),
            init=init,
            blob=init_blob,
            on_device=on_device,
            seed=seed,
            timeout_s=LOAD_LIMIT_S,
        )
        self.mark("load")
        return worker, reply.fields

    def _seal(self, worker: Worker, *, hostile: bool, extra: dict[str, str]) -> None:
        home = self.folder / f"{worker.name}-home"
        environment = {
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "TORCH_EXTENSIONS_DIR": str(home / "extensions"),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
            "TRITON_CACHE_DIR": str(home / "triton"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "CUDA_CACHE_PATH": str(home / "cuda"),
            **inherited.NAMED,
            **self.variables,
            **extra,
        }
        reply = worker.call(
            "seal",
            hostile=hostile,
            environment=environment,
            threads=self.threads,
            target=self.options.target,
            precision=self.options.precision,
            policy=self.options.policy,
            file_bytes=FILE_BYTES,
            memory_bytes=_memory_limit() if hostile and self.options.target == "cpu" else None,
            timeout_s=30.0,
        )
        worker.note_flags()
        if hostile:
            self.filtered = reply.fields.get("filtered") is True

    def own_code(self) -> tuple[staging.OwnModule | None, str, str]:
        """From where the submission's worker may map code: the fresh module, and the folders where load_inline and
        Triton build.
        """
        home = self.folder / "submission-home"
        return self.module, f"{home / 'extensions'}/", f"{home / 'triton'}/"

    def mark(self, name: str) -> None:
        self.marks[name] = round(time.monotonic() - self.started, 3)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.nursery.close()
        if self._builder is not None:
            self._builder.join(timeout=5.0)
        freeze.kill_all(os.getpid(), known=[], free=[])
        removal.remove(self.folder)


def _capability(target: str) -> str | None:
    return device.compute_capability() if target == "cuda" else None


def _memory_limit() -> int:
    """Address space for a submission: what the machine has, and some for what is mapped but never touched."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total + SPARE_BYTES
