"""Sandboxes for the tests of this folder."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from sandbox_kinds import CONFINED, KINDS, Opener, open_kind, require

from agent.sandbox.base import Mount, Sandbox


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[Opener]:
    """Opens sandboxes of any kind on a fresh workspace and closes them at the end."""
    with ExitStack() as stack:

        def start(kind: str, *, workspace: Path | None = None, **spec: Any) -> Sandbox:
            folder = workspace or tmp_path / "workspace"
            folder.mkdir(exist_ok=True)
            return stack.enter_context(closing(open_kind(kind, folder, **spec)))

        yield start


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One sandbox of each kind for all tests of a module that leave it in order."""
    with closing(_shared(request, tmp_path_factory)) as opened:
        yield opened


@pytest.fixture(scope="module", params=CONFINED)
def confined(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The same for the kinds that confine."""
    with closing(_shared(request, tmp_path_factory)) as opened:
        yield opened


def _shared(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Sandbox:
    require(request.param)
    base = factory.mktemp("shared")
    workspace, tools = base / "work space é", base / "tools"
    workspace.mkdir()
    tools.mkdir()
    (tools / "tool.py").write_text("print('from the tool')\n")
    for folder in (base, tools):
        folder.chmod(0o755)
    return open_kind(request.param, workspace, mounts=(Mount(tools, "/opt/agent-tools"),))
