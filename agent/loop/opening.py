"""How an episode begins: the workspace, the facts about the target, and the first messages."""

import shutil
from pathlib import Path
from typing import Final

from agent.assets import asset
from agent.backends.base import Message
from agent.config import Config
from agent.judging.sandboxes import SKILL_NAME
from agent.judging.tool_runs import Rules
from agent.loop.prompts import render
from agent.sandbox.base import SKILL, WORKSPACE, Sandbox
from agent.tasks.task import Task

FACTS_TIMEOUT_S: Final = 30.0
HEADER: Final = Path("binding") / "binding_registry.h"
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


def lay_out(workspace: Path, task: Task) -> None:
    """What the model finds: the task's text for reading and the header that kernels include. Safe to repeat."""
    (workspace / "kernels").mkdir(parents=True, exist_ok=True)
    (workspace / "model.py").write_bytes(task.text.encode("utf-8"))
    shutil.copyfile(asset("tools") / HEADER, workspace / HEADER.name)


def target_facts(sandbox: Sandbox) -> dict[str, str]:
    """What the machine offers inside the sandbox, asked there and not on the host."""
    printed = sandbox.exec(("bash", "-c", FACTS), timeout_s=FACTS_TIMEOUT_S).stdout.text()
    pairs = (line.partition(": ") for line in printed.splitlines())
    return {key: value.strip(" ,") for key, _, value in pairs if value.strip(" ,")}


def first_messages(config: Config, task: Task, rules: Rules, sandbox: Sandbox) -> tuple[Message, Message]:
    """The system prompt (role, actions, limits, skill) and the task."""
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
    return (
        Message(role="system", content=system),
        Message(role="user", content=render("task", task=task, rules=rules)),
    )


def skill_text() -> str:
    """SKILL.md without its front matter."""
    text = (asset("skills") / SKILL_NAME / "SKILL.md").read_text(encoding="utf-8")
    if text.startswith("---\n"):
        _, _, text = text.removeprefix("---\n").partition("\n---\n")
    return text.strip()
