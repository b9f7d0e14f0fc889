"""How an episode begins: the workspace, the facts about the target, the first messages, and a seed of earlier tries."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.assets import asset
from agent.backends.base import Message
from agent.backends.presets import resolve
from agent.config import Config
from agent.errors import ConfigError, RecordError
from agent.judging.sandboxes import SKILL_NAME
from agent.judging.tool_runs import Rules
from agent.loop.condense import EXAMPLE_MARK
from agent.loop.observations import excerpt_text
from agent.loop.prompts import render
from agent.loop.window import is_short, task_chars
from agent.sandbox.base import SKILL, WORKSPACE, Sandbox
from agent.sandbox.snapshot import SnapshotError, copy_submission
from agent.tasks.task import Task
from agent.trajectory.folder import RunFolder
from agent.trajectory.writer import record_error

FACTS_TIMEOUT_S: Final = 30.0
SEED_NOTES: Final = "seed.json"
HEADERS: Final = ("launcher.h", "binding_registry.h")
# Printed as `key: value` lines; whatever is missing in a sandbox prints nothing.
FACTS: Final = r"""
echo "cores: $(nproc)"
echo "processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
flags=$(sed -n 's/^\(flags\|Features\)[^:]*: //p' /proc/cpuinfo | head -1 | tr ' ' '\n' |
  grep -Ex 'sse4_2|avx|avx2|fma|f16c|avx512(f|bw|dq|vl|_bf16|_fp16|_vnni)|amx_(tile|bf16|int8)|asimd|sve|sve2|bf16' |
  sort -u | tr '\n' ' ')
echo "instruction sets: $flags"
echo "caches: $(lscpu 2>/dev/null | sed -n 's/^ *\(L[123][a-z]*\)[^:]*: */\1 /p' | tr '\n' ',')"
echo "C++ compiler: $(c++ --version 2>/dev/null | head -1)"
echo "nvcc: $(nvcc --version 2>/dev/null | sed -n 's/.*release/release/p')"
echo "GPU: $(nvidia-smi --query-gpu=name,compute_cap,memory.total --format=csv,noheader 2>/dev/null | head -1)"
"""


@dataclass(frozen=True)
class Seed:
    """What a new episode begins with: a submission folder (None: only words) and what was tried before, as a text."""

    folder: Path | None
    notes: str


def keep_seed(folder: RunFolder, seed: Seed | None) -> Seed | None:
    """The run's seed, kept in the run itself before anything else happens, so that a resumed run has the same opening.

    What the run holds already wins. Raises ConfigError when the seed's folder holds no submission, RecordError.
    """
    kept = read_seed(folder)
    if kept is not None or seed is None:
        return kept
    try:
        if seed.folder is not None:
            copy_submission(seed.folder, folder.seed)
    except SnapshotError as error:
        raise ConfigError(f"{seed.folder} cannot be a seed: {error}") from error
    except OSError as error:
        raise record_error(folder.seed, error) from error
    folder.write_json(SEED_NOTES, {"schema_version": 1, "notes": seed.notes})  # last: what makes the seed count
    return read_seed(folder)


def read_seed(folder: RunFolder) -> Seed | None:
    """The seed that a run was begun with. Raises RecordError where its record is damaged."""
    path = folder.path / SEED_NOTES
    try:
        notes = str(json.loads(path.read_bytes())["notes"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read: {error!r}") from error
    return Seed(folder.seed if folder.seed.is_dir() else None, notes)


def lay_out(workspace: Path, task: Task, *, seed: Seed | None = None) -> None:
    """What the model finds: the task's text, the headers that kernels include, a seed's files. Safe to repeat."""
    (workspace / "kernels").mkdir(parents=True, exist_ok=True)
    (workspace / "model.py").write_bytes(task.text.encode("utf-8"))
    for name in HEADERS:
        shutil.copyfile(asset("tools") / "binding" / name, workspace / name)
    if seed is not None and seed.folder is not None:
        shutil.copytree(seed.folder, workspace, dirs_exist_ok=True)


def target_facts(sandbox: Sandbox) -> dict[str, str]:
    """What the machine offers inside the sandbox, asked there and not on the host."""
    printed = sandbox.exec(("bash", "-c", FACTS), timeout_s=FACTS_TIMEOUT_S).stdout.text()
    pairs = (line.partition(": ") for line in printed.splitlines())
    return {key: value.strip(" ,") for key, _, value in pairs if value.strip(" ,")}


def opening_length(seed: Seed | None) -> int:
    """How many messages first_messages gives."""
    return 2 if seed is None else 3


def first_messages(
    config: Config, task: Task, rules: Rules, sandbox: Sandbox, *, seed: Seed | None = None
) -> tuple[Message, ...]:
    """The system prompt (role, actions, limits, skill), the task, and what was tried before where there is a seed."""
    if is_short(config.backend):
        opening = _short(config, task, rules)
        return opening if seed is None else (*opening, Message(role="user", content=_told(seed)))
    system = render(
        "system",
        workspace=WORKSPACE,
        skill_path=SKILL,
        skill=skill_text(),
        facts=target_facts(sandbox),
        rules=rules,
        limits=config.limits,
        cpus=config.sandbox.cpus,
    )
    opening = (
        Message(role="system", content=system),
        Message(role="user", content=render("task", task=task, rules=rules)),
    )
    return opening if seed is None else (*opening, Message(role="user", content=_told(seed)))


def _short(config: Config, task: Task, rules: Rules) -> tuple[Message, ...]:
    """The skill's digest with an example, and as much of the task as leaves room for the work."""
    # An example in the notation in which the model has to write teaches both at once.
    blocks = resolve(config.backend).tool_protocol == "text"
    values = {"rules": rules, "limits": config.limits, "example_mark": EXAMPLE_MARK, "blocks": blocks}
    shown = excerpt_text(task.text.strip(), limit=task_chars(config.backend))
    return (
        Message(role="system", content=render("system_short", workspace=WORKSPACE, **values)),
        Message(role="user", content=render("task_short", shown=shown, rules=rules)),
    )


def _told(seed: Seed) -> str:
    files = [path.relative_to(seed.folder) for path in seed.folder.rglob("*") if path.is_file()] if seed.folder else []
    return render("seed", files=sorted(map(str, files)), notes=seed.notes.strip())


def skill_text() -> str:
    """SKILL.md without its front matter."""
    text = (asset("skills") / SKILL_NAME / "SKILL.md").read_text(encoding="utf-8")
    if text.startswith("---\n"):
        _, _, text = text.removeprefix("---\n").partition("\n---\n")
    return text.strip()
