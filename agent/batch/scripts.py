"""Which replayed script a sample gets: one for all, one per task, one per sample, or what ships for the task."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.backends.registry import shipped_scripts
from agent.backends.replay import EVENTS_NAME, SCRIPT_NAME
from agent.backends.script import read_script
from agent.config import BackendConfig, Config, expanded
from agent.errors import ConfigError
from agent.judging.target import resolve_target
from agent.tasks.task import Task

SHOWN: Final = 3


class Scripts:
    """`DIR/<id>/<k>.md`, `DIR/<id>.md`, `DIR/<id>/turns.md`, or a run folder `DIR/<id>`, in this order."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._root = _many(config.backend)
        self._ships = shipped_scripts() if is_shipped(config.backend) else {}

    def check(self, tasks: tuple[Task, ...], samples: int) -> None:
        """Raises ConfigError that counts the tasks without a script."""
        missing = [task.name for task in tasks if not all(self._there(task, k) for k in range(samples))]
        if not missing:
            return
        names = ", ".join(missing[:SHOWN]) + (", …" if len(missing) > SHOWN else "")
        if self._root is None:
            if self._config.backend.name == "auto":
                return  # what no script ships for is the built-in policy's
            raise ConfigError(
                f"no language model is configured, and nothing ships for {len(missing)} of {len(tasks)} tasks: {names}",
                hint="--model NAME, --base-url URL, or --script PATH",
            )
        raise ConfigError(
            f"{self._root} holds no script for {len(missing)} of {len(tasks)} tasks: {names}",
            hint="DIR/<task id>.md, DIR/<task id>/turns.md, DIR/<task id>/<sample>.md, or a run folder DIR/<task id>",
        )

    def config_for(self, task: Task, sample: int) -> Config:
        """The configuration of this sample's episodes."""
        found = self._find(task, sample) if self._root else self._ships.get(task.sha256)
        if found is None:
            return self._config
        chosen = {"name": "replay", "script": str(found)}
        if self._config.backend.name == "auto" and not self._root and self._is_for_another_target(found):
            chosen = {"name": "builtin"}
        backend = self._config.backend.model_copy(update=chosen)
        return self._config.model_copy(update={"backend": backend})

    def _is_for_another_target(self, shipped: Path) -> bool:
        return shipped.name == SCRIPT_NAME and read_script(shipped).target != resolve_target(self._config.judge)

    def _there(self, task: Task, sample: int) -> bool:
        if self._root is not None:
            return self._find(task, sample) is not None
        return not is_shipped(self._config.backend) or task.sha256 in self._ships

    def _find(self, task: Task, sample: int) -> Path | None:
        assert self._root is not None
        return next((path for path in _places(self._root, task.name, sample) if path.exists()), None)


def is_shipped(backend: BackendConfig) -> bool:
    """Whether each task is answered by what ships for it."""
    asked = backend.model or backend.base_url
    return not backend.script and (backend.name in ("replay", "shipped") or (backend.name == "auto" and not asked))


def _many(backend: BackendConfig) -> Path | None:
    """The folder of scripts; None where there is one for all, or none. Raises ConfigError where it does not exist."""
    if not backend.script or backend.name not in ("auto", "replay"):
        return None
    path = expanded(Path(backend.script)).absolute()
    if not path.exists():
        raise ConfigError(f"cannot replay {path}: it does not exist")
    one = path.is_file() or (path / EVENTS_NAME).is_file() or (path / SCRIPT_NAME).is_file()
    return None if one else path


def _places(root: Path, id: str, sample: int) -> Iterator[Path]:
    folder = root / id
    if not folder.resolve().is_relative_to(root.resolve()):
        return
    yield folder / f"{sample}.md"
    yield folder.with_name(f"{folder.name}.md")
    for name in (SCRIPT_NAME, EVENTS_NAME):
        yield folder / name
