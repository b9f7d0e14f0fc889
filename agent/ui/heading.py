"""What a person reads before an episode starts: the task, the rules, who answers, where it runs, and what to mind."""

from agent.backends.base import Backend
from agent.config import Config
from agent.tasks.task import Task
from agent.trajectory.folder import RunFolder
from agent.ui.quantities import show_count, show_duration
from agent.ui.summaries import rules_words
from agent.ui.views import Heading


def heading_of(config: Config, task: Task, folder: RunFolder, backend: Backend) -> Heading:
    return Heading(
        title=f"{task.name}",
        facts=(
            ("task", str(task.path)),
            ("model", backend.name),
            ("sandbox", config.sandbox.kind),
            ("rules", rules_words(config.judge)),
            ("limits", limits_words(config)),
            ("run", str(folder.path)),
        ),
        remarks=tuple(filter(None, [getattr(backend, "notice", "")])),
        warnings=_warnings(config.sandbox.kind),
        turn_limit=config.limits.turns,
        time_limit_s=config.limits.time_s,
    )


def limits_words(config: Config) -> str:
    limits = config.limits
    parts = [f"{limits.turns} turns"] if limits.turns else []
    parts += [show_duration(limits.time_s)] if limits.time_s else []
    parts += [f"{show_count(limits.tokens)} tokens"] if limits.tokens else []
    parts += [f"${limits.cost_usd:g}"] if limits.cost_usd else []
    return ", ".join(parts) or "none"


def _warnings(kind: str) -> tuple[str, ...]:
    if kind != "none":
        return ()
    return ("no sandbox: model-written code runs on this machine, with your files and network",)
