"""What a report keeps of a judgement, and the evidence about the submission's process that the referee takes from
/proc itself.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

import symbols
import torch

from referee import samples
from referee.correctness import Trial
from referee.outcome import Rejected
from referee.session import Session

OPERATORS: Final = 200
NAME: Final = 120  # characters of one of them that are kept
KERNELS: Final = 60
SYSTEM: Final = ("/usr", "/lib", "/lib64", "/opt")
UNAMBIGUOUS: Final = ("policy.torch_op", "policy.vendor_library", "tamper.interpreter")
# In what torch.compile builds for a CPU, whatever the kernel.
BY_TORCH_COMPILE: Final = (b"TORCHINDUCTOR", b"inductor_cpu", b"torch/csrc/inductor")
# System calls by which a module can reach code that its symbols do not name.
REACHING: Final = (
    " dlopen",
    " dlsym",
    " dlvsym",
    " dlmopen",
    " dl_iterate_phdr",
    " ptrace",
    " mprotect",
    " pkey_mprotect",
    " process_vm_",
)


def collect(session: Session, trial: Trial | None, times: samples.Times | None) -> dict[str, Any]:
    """Everything is small: samples and names, no tensors."""
    found: dict[str, Any] = {"marks_s": session.marks, "task_sha256": session.options.task_sha256}
    if trial is not None:
        found["outputs_checked"] = trial.checked
        found["float64_oracle"] = trial.notes.get("float64_oracle")
        found["controls_rejected"] = trial.controls.rejected
        found["controls_indistinct"] = trial.controls.indistinct
        found["looks"] = trial.looks
        found["precision_flags"] = trial.submission.in_force or None
        found["operators"] = [name[:NAME] for name in sorted(trial.operators)[:OPERATORS]]
        if trial.quiet is not None:
            found["kernels"] = [list(kernel) for kernel in sorted(trial.kernels, key=lambda entry: -entry[2])[:KERNELS]]
            found["kernel_us_by_owner"] = trial.notes.get("kernel_us")
            found["probe_us"] = trial.quiet.waits_us
        found["tolerance"] = [
            {"largest": tolerance.largest, "rms": tolerance.rms, "reference_rms": tolerance.reference.rms}
            for tolerance in trial.tolerances.get(1.0, [])
        ]
        for name in ("filter", "symbols", "places_beyond_allowed", "slower_after_new_weights", "state_bytes"):
            found[name] = trial.notes.get(name)
    if times is not None and times.samples["submission"]:
        found["timing"] = samples.report(times)
    return found


def check_mappings(trial: Trial) -> None:
    """Under strict, code that is mapped executable comes from the system, Python, torch, or the submission's own
    build.
    """
    if trial.policy != "strict":
        return
    module, *built_there = trial.notes["own_code"]
    system = tuple(f"{folder}/" for folder in _system())
    for path in sorted(trial.files | mapped_code(trial.submission.mappings())):
        own = path.startswith(tuple(built_there)) or (module is not None and module.is_at(path))
        if not own and not path.startswith(system):
            raise Rejected(
                "policy.foreign_code", f"code from {path} is mapped, which is not built from the submission's sources"
            )


def _system() -> set[str]:
    """Folders of the system, Python and torch (which may be a user's own), as the kernel tells them: without links."""
    packages = Path(torch.__file__).parents[1]
    return {*SYSTEM, *(os.path.realpath(folder) for folder in (sys.prefix, sys.base_prefix, packages))}


def mapped_code(mappings: str) -> set[str]:
    """Files that are mapped executable, from the text of a /proc/PID/maps."""
    found = set()
    for line in mappings.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
            found.add(fields[5])
    return found


def _imports(path: Path, policy: str) -> symbols.Imports:
    """Of a module that load_inline has built."""
    try:
        imports, content = symbols.read_imports(path), path.read_bytes()
    except (symbols.ElfError, OSError):
        raise Rejected("policy.foreign_code", f"{path.name} cannot be read as a module") from None
    if policy == "strict" and any(mark in content for mark in BY_TORCH_COMPILE):
        raise Rejected(
            "policy.foreign_code",
            f"torch.compile has made {path.name}: under policy strict the submission's own sources are compiled",
        )
    return imports


def check_module(session: Session, trial: Trial) -> None:
    """What the modules that were built from the submission's sources take from elsewhere; unambiguous findings
    reject.
    """
    policy, target = session.options.policy, session.options.target
    found = [] if session.imports is None else symbols.findings(session.imports, policy=policy, target=target)
    # What load_inline built; its file may have changed since it was loaded.
    extensions = trial.notes["own_code"][1]
    for path in sorted(mapped_code(trial.submission.mappings())):
        if path.startswith(extensions):
            found += symbols.findings(_imports(Path(path), policy), policy=policy, target=target)
    trial.notes["symbols"] = found[:OPERATORS]
    for finding in found:
        if finding["code"] in UNAMBIGUOUS or any(name in finding["detail"] for name in REACHING):
            raise Rejected(finding["code"], finding["detail"])
