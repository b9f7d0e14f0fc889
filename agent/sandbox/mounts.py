"""What is checked and prepared on the host before a sandbox mounts it."""

import contextlib
import os
import shutil
import stat
import subprocess
from pathlib import Path, PurePosixPath

from agent.errors import SandboxError
from agent.sandbox.base import SandboxSpec


def check_mounts(spec: SandboxSpec, *, readable_by_others: bool = False) -> None:
    """Raise SandboxError for a missing source or a target that is no absolute path, naming the fix."""
    if not spec.workspace.is_dir():
        raise SandboxError(f"the workspace {spec.workspace} is not a folder", hint=f"mkdir -p '{spec.workspace}'")
    for mount in (*spec.system, *spec.mounts):
        target = PurePosixPath(mount.target)
        if not target.is_absolute() or ".." in target.parts or len(target.parts) < 2:
            raise SandboxError(f"mount target {mount.target} is not an absolute path below /")
        if not mount.source.exists():
            raise SandboxError(
                f"cannot mount {mount.source} at {mount.target}: it does not exist", hint=f"ls -ld '{mount.source}'"
            )
        if readable_by_others:
            _require_readable(mount.source)
    if readable_by_others and spec.workspace_read_only:
        _require_readable(spec.workspace)


def give_writable(spec: SandboxSpec, user: tuple[int, int]) -> None:
    """As root: make everything that the sandbox may write belong to its user. Does nothing for an ordinary user."""
    if os.getuid() != 0:
        return
    if not spec.workspace_read_only:
        give_to(spec.workspace, user)
    for mount in spec.mounts:
        if not mount.read_only:
            give_to(mount.source, user)


def give_to(folder: Path, user: tuple[int, int]) -> None:
    """chown a folder and all below it, following nothing."""
    try:
        os.chown(folder, *user)
        for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
            for name in (*folders, *files):
                os.chown(name, *user, dir_fd=descriptor, follow_symlinks=False)
    except RecursionError:
        _give_deep(folder, user)
    except OSError as error:
        raise SandboxError(f"cannot give {folder} to the sandbox's user: {error}", hint=f"ls -ld '{folder}'") from error


def _give_deep(folder: Path, user: tuple[int, int]) -> None:
    """Folders nest deeper than Python's functions can call themselves: a model's doing, and no reason to stop."""
    command = ["chown", "-R", "-h", f"{user[0]}:{user[1]}", "--", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise SandboxError(
            f"cannot give {folder} to the sandbox's user: {done.stderr[-200:]}", hint=f"rm -r '{folder}'"
        )


def remove_tree(folder: Path) -> None:
    """Remove a folder that a sandbox wrote into: follows no link, opens folders without rights, never raises."""
    with contextlib.suppress(OSError, RecursionError):
        for _, folders, _, descriptor in os.fwalk(folder, follow_symlinks=False):
            for name in folders:
                if stat.S_ISDIR(os.lstat(name, dir_fd=descriptor).st_mode):
                    os.chmod(name, 0o700, dir_fd=descriptor)
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        # Folders nest deeper than Python's functions can call themselves, or than it may open descriptors.
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            with contextlib.suppress(OSError):
                subprocess.run([*command, "--", folder], capture_output=True, check=False)


def for_all(path: Path) -> bool:
    """Whether it is there and every user may read it."""
    if not path.exists():
        return False
    wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
    return path.stat().st_mode & wanted == wanted


def _require_readable(path: Path) -> None:
    if not for_all(path):
        raise SandboxError(f"the sandbox's user may not read {path}", hint=f"chmod -R o+rX '{path}'")
