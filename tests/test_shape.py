"""The shape of the house: imports, what tools/ may use, what the wheel holds, and that the README names what exists."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import __version__

ROOT = Path(__file__).resolve().parent.parent

# Longest prefix wins; a module may import modules of its own rank or a lower one.
RANKS = {
    "agent": 0,
    "agent.errors": 0,
    "agent.assets": 0,
    "agent.config": 1,
    "agent.backends": 2,
    "agent.sandbox": 2,
    "agent.tasks": 2,
    "agent.tasks.admission": 6,
    "agent.tasks.synthesis": 6,
    "agent.trajectory": 2,
    "agent.judging": 3,
    "agent.loop.actions": 3,
    "agent.loop": 3,
    "agent.loop.graph": 4,
    "agent.loop.play": 4,
    "agent.loop.episode": 5,
    "agent.ui": 6,
    "agent.batch": 6,
    "agent.bench": 6,
    "agent.environments": 6,
    "agent.export": 6,
    "agent.view": 6,
    "agent.commands": 7,
    "agent.cli": 8,
    "agent.__main__": 9,
}


def rank(module: str) -> int:
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        if prefix in RANKS:
            return RANKS[prefix]
    raise AssertionError(f"{module} has no rank")


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno


AGENT_FILES = sorted((ROOT / "agent").rglob("*.py"))
TOOL_FILES = sorted((ROOT / "tools").rglob("*.py"))


def test_there_is_something_to_check() -> None:
    assert len(AGENT_FILES) > 20
    assert len(TOOL_FILES) > 5


@pytest.mark.parametrize("path", AGENT_FILES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    here = rank(module_name(path))
    upward = [
        f"{path.name}:{line} imports {m}" for m, line in imported(path) if m.startswith("agent") and rank(m) > here
    ]
    assert upward == []


@pytest.mark.parametrize("path", AGENT_FILES, ids=module_name)
def test_the_host_never_imports_torch_or_tools(path: Path) -> None:
    tops = {name.split(".")[0] for name, _ in imported(path)}
    assert tops.isdisjoint({"torch", "triton", "numpy", "tools"})


@pytest.mark.parametrize("path", [p for p in AGENT_FILES if p.name != "config.py"], ids=module_name)
def test_only_config_reads_the_environment(path: Path) -> None:
    assert not re.search(r"os\.environ|os\.getenv", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", TOOL_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_tools_use_the_standard_library_and_torch_only(path: Path) -> None:
    own = {p.stem for p in (ROOT / "tools").iterdir()}
    tops = {name.split(".")[0] for name, _ in imported(path)}
    assert tops <= set(sys.stdlib_module_names) | {"torch", "triton"} | own


def test_no_tool_carries_a_standard_library_name() -> None:
    names = {p.stem for p in (ROOT / "tools").rglob("*.py")} - {"__init__", "__main__"}
    assert names.isdisjoint(sys.stdlib_module_names)


def test_every_module_says_what_it_holds() -> None:
    silent = [
        str(p.relative_to(ROOT))
        for p in (*AGENT_FILES, *TOOL_FILES)
        if p.name != "__init__.py" and not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_nothing_unfinished_is_left() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    found = [str(p) for p in (*AGENT_FILES, *TOOL_FILES) if words.search(p.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize("command", [["--help"], ["optimize", "--help"]], ids=" ".join)
def test_help_stays_light(command: list[str]) -> None:
    heavy = ("langgraph", "openai", "docker", "torch", "jinja2", "sqlite3")
    code = (
        "import sys\nfrom agent.cli import main\n"
        f"sys.argv = ['agent', *{command!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "HEAVY []" in done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tracked files, so that the checkout gets no build folder."""
    copy = tmp_path_factory.mktemp("source")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, names):
        source, target = ROOT / name.decode(), copy / name.decode()
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(copy)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"agent"}
    for folder in ("tools", "skills", "sandbox_image", "examples"):
        tracked = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
        wanted = {f"agent/_assets/{line}" for line in tracked.stdout.splitlines() if (ROOT / line).is_file()}
        assert wanted and wanted <= names
    assert not any("__pycache__" in name for name in names)
    assert any(name.startswith("agent/loop/templates/") for name in names)


def test_tools_is_not_importable_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import agent, importlib.util; "
        "print(importlib.util.find_spec('tools'))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip() == "None"


def test_the_readme_file_map_is_complete_and_true() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```text map\n(.*?)```", text, re.DOTALL)
    assert block, "README.md has a file map in a ```text map block"
    listed = {line.split()[0].strip("/") for line in block.group(1).splitlines() if line.strip()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = {name.split("/")[0] for name in tracked if "/" in name and not name.startswith(".")}
    assert folders <= listed
    assert [name for name in listed if not (ROOT / name).exists()] == []


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == __version__


MAPPED = ("agent", *(f"agent/{p.parent.name}" for p in sorted((ROOT / "agent").glob("*/__init__.py"))))


@pytest.mark.parametrize("folder", [*MAPPED, "tests", "benchmarks", "skills"])
def test_each_folders_readme_names_what_is_in_it_and_nothing_else(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    tracked = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    parts = [line.removeprefix(f"{folder}/").split("/") for line in tracked.splitlines() if (ROOT / line).exists()]
    there = {first if not rest else f"{first}/" for first, *rest in parts} - {"README.md", "__init__.py"}
    named = set(re.findall(r"`([\w.-]+(?:\.\w+|/))`", text))
    assert there - named == set()
    assert {name for name in named - there if not (ROOT / folder / name).exists()} == set()


def test_the_readme_names_only_flags_that_exist() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from agent.cli import main; import sys; sys.argv=['agent','optimize','--help']; main()",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"},
    )
    known = set(re.findall(r"--[a-z][a-z-]+", done.stdout))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    used = {
        flag
        for line in re.findall(r"^.*agent optimize .*$", text, re.MULTILINE)
        for flag in re.findall(r"--[a-z][a-z-]+", line)
    }
    assert used <= known
