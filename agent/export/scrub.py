"""Takes secrets, paths of the host, and names of users and hosts out of texts before they leave in a data set.

Covers: keys and tokens of known shapes, bearer tokens, passwords in URLs and assignments, private keys; home folders;
the folders in which the run and its task lay, temporary ones included; Python environments; names of users (those of
recorded home folders and of whoever exports) and of the exporting host. Does not cover: secrets without a known shape,
names and words that a task itself holds, anything inside token ids (they are withheld where their text was changed).

Paths inside sandboxes (/workspace, /opt/agent-*, /tmp) stay. What is put in place (`<secret>`, `<home>`, …) matches no
pattern, so that scrubbing twice changes nothing more.
"""

import os
import pwd
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final

from agent.backends.sanitize import clean_text

# A literal that must be in the text, the pattern, what takes its place. The literal is found far faster than a pattern.
_SECRETS: Final = tuple(
    (needle, re.compile(pattern, re.DOTALL), replacement)
    for needle, pattern, replacement in (
        (
            "PRIVATE KEY-----",
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.{0,8192}?-----END [A-Z ]*PRIVATE KEY-----",
            "<secret>",
        ),
        ("sk-", r"(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{16,}", "<secret>"),
        *((f"gh{kind}_", rf"(?<![A-Za-z0-9_])gh{kind}_[A-Za-z0-9]{{20,}}", "<secret>") for kind in "pousr"),
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{20,}", "<secret>"),
        ("glpat-", r"glpat-[A-Za-z0-9_-]{16,}", "<secret>"),
        ("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", "<secret>"),
        ("AKIA", r"(?<![A-Za-z0-9])AKIA[A-Z0-9]{16}(?![A-Za-z0-9])", "<secret>"),
        ("ASIA", r"(?<![A-Za-z0-9])ASIA[A-Z0-9]{16}(?![A-Za-z0-9])", "<secret>"),
        ("AIza", r"(?<![A-Za-z0-9_])AIza[A-Za-z0-9_-]{30,}", "<secret>"),
        ("hf_", r"(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{20,}", "<secret>"),
        ("nvapi-", r"nvapi-[A-Za-z0-9_-]{20,}", "<secret>"),
        ("npm_", r"(?<![A-Za-z0-9_])npm_[A-Za-z0-9]{30,}", "<secret>"),
        ("pypi-", r"pypi-[A-Za-z0-9_-]{30,}", "<secret>"),
        ("gsk_", r"(?<![A-Za-z0-9_])gsk_[A-Za-z0-9]{20,}", "<secret>"),
        ("r8_", r"(?<![A-Za-z0-9_])r8_[A-Za-z0-9]{30,}", "<secret>"),
        ("eyJ", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+", "<secret>"),
        ("earer ", r"(?i:\b(bearer) +)[A-Za-z0-9._~+/=-]{12,}", r"\1 <secret>"),
        ("asic ", r"(?i:\b(authorization['\"]?\s*[:=]\s*['\"]?basic +))[A-Za-z0-9+/=]{8,}", r"\1<secret>"),
        ("://", r"://[^\s/:@'\"<>]+:[^\s/@'\"<>]+@", "://<secret>@"),
    )
)
_ASSIGNED: Final = re.compile(
    # Only at a word's start: from each character on, a line of 30 kB without a blank would take minutes.
    r"(?i)(?<![\w-])([\w-]*(?:(?:api|access|account|secret)[_-]?key|secret|passwd|password"
    r"|(?:access|auth|session|hub|hf|github|gitlab)[_-]?token)"
    r"['\"]?\s*[:=]\s*['\"]?)(?=[A-Za-z_./+=-]{0,200}\d)[A-Za-z0-9_./+=-]{10,}"
)
_END: Final = r"[^/\s'\"`:;,()\[\]{}<>|&]"
_HOMES: Final = re.compile(rf"(?<!/workspace)(?<!/tmp)/(?:home|Users)/{_END}+")
_ROOT_HOME: Final = re.compile(r"(?:(?<![\w.>])|(?<=-[ILB]))/root(?![\w.-])")
_MAC_TEMP: Final = re.compile(rf"(?:/private)?/var/folders/{_END}+/{_END}+")
_PYTEST_TEMP: Final = re.compile(rf"/tmp/pytest-of-{_END}+")
_PACKAGES: Final = re.compile(r"/lib/python3\.\d+/(?:site|dist)-packages")
_ENDS: Final = frozenset(" \t\r\n'\"`:;,()[]{}<>|&")
_OF_SANDBOXES: Final = ("/usr/", "/opt/", "/workspace/")
PATH_CHARS: Final = 4096
# First components below which nothing of the host lies in a sandbox's view, so that a longer prefix names a folder.
_SYSTEM: Final = frozenset(
    {"usr", "opt", "bin", "lib", "lib64", "etc", "proc", "sys", "dev", "run", "workspace", "sbin"}
)
_COMMON_NAMES: Final = frozenset(
    (
        *("root", "user", "users", "ubuntu", "debian", "admin", "agent", "runner", "docker", "sandbox", "nobody"),
        *("model", "test", "tests", "work", "worker", "dev", "data", "home", "local", "localhost", "host", "python"),
        *("torch", "cuda", "kernel", "none", "null", "true", "false", "main", "default", "build"),
    )
)
_DISTINCTIVE_CHARS: Final = 6
MOST_ROUNDS: Final = 20
PLACEHOLDERS: Final = ("<secret>", "<home>", "<run>", "<path>", "<tmp>", "<env>", "<user>", "<host>", "<word>")


@dataclass(frozen=True)
class Rules:
    """What is particular to one run on one host: folder -> placeholder, and names."""

    folders: tuple[tuple[str, str], ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """What the exporting machine would give away."""

    home: str
    user: str
    name: str
    temp: str

    @classmethod
    def here(cls) -> "Host":
        try:
            entry = pwd.getpwuid(os.getuid())
            user, home = entry.pw_name, entry.pw_dir
        except KeyError:  # a container's user without an entry
            user, home = "", ""
        return cls(home=home, user=user, name=socket.gethostname(), temp=tempfile.gettempdir())


def rules_for(host: Host, *, run: str, recorded: Iterable[str], words: Sequence[str] = ()) -> Rules:
    """`run` is the run's folder, `recorded` holds absolute paths of the collecting host (task, output, script)."""
    recorded = tuple(recorded)
    folders: dict[str, str] = {run: "<run>"} if run else {}
    if len(PurePosixPath(host.home).parts) > 1 and not _is_system(host.home):
        folders[host.home] = "<home>"
    if host.temp.rstrip("/") not in ("/tmp", "/var/tmp", ""):
        folders[host.temp] = "<tmp>"
    for path in (run, *recorded):
        root = _root(path)
        if root is not None:
            folders.setdefault(root, "<tmp>" if root.startswith(("/tmp/", "/var/")) else "<path>")
    users = {match for path in (run, *recorded) for match in re.findall(r"^/(?:home|Users)/([^/]+)", path)}
    users.add(host.user)
    ordered = sorted(folders.items(), key=lambda item: (-len(item[0]), item[0]))
    hosts = {host.name, host.name.split(".")[0]}
    return Rules(
        folders=tuple(ordered),
        users=tuple(sorted(user for user in users if len(user) > 1 and user.lower() not in _COMMON_NAMES)),
        hosts=tuple(sorted(name for name in hosts if len(name) > 3 and name.lower() not in _COMMON_NAMES)),
        words=tuple(sorted({word for word in words if word}, key=lambda word: (-len(word), word))),
    )


def scrub_text(text: str, rules: Rules, counts: Counter[str]) -> str:
    """The text without what gives away; lone surrogates become U+FFFD. `counts` says what was replaced how often."""
    text = clean_text(text)
    for _ in range(MOST_ROUNDS):  # what was replaced can lay bare what stood behind it
        found: Counter[str] = Counter()
        text = _scrub_secrets(text, found)
        text = _scrub_paths(text, rules, found)
        text = _scrub_names(text, rules, found)
        if not found:
            break
        counts.update(found)
    return text


@lru_cache(maxsize=256)
def _scrub_cached(text: str, rules: Rules) -> tuple[str, tuple[tuple[str, int], ...]]:
    counts: Counter[str] = Counter()
    return scrub_text(text, rules, counts), tuple(counts.items())


def scrub_repeated(text: str, rules: Rules, counts: Counter[str]) -> str:
    """As scrub_text, for texts that many runs share."""
    scrubbed, found = _scrub_cached(text, rules)
    counts.update(dict(found))
    return scrubbed


def scrub_json(value: Any, rules: Rules, counts: Counter[str]) -> Any:
    """scrub_text on every string, keys included."""
    if isinstance(value, str):
        return scrub_text(value, rules, counts)
    if isinstance(value, dict):
        return {scrub_text(str(key), rules, counts): scrub_json(item, rules, counts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_json(item, rules, counts) for item in value]
    return value


def _scrub_secrets(text: str, counts: Counter[str]) -> str:
    for needle, pattern, replacement in _SECRETS:
        if needle in text:
            text = _sub(pattern, replacement, text, "secrets", counts)
    if _has_assigned_word(text):
        text = _sub(_ASSIGNED, r"\1<secret>", text, "secrets", counts)
    return text


def _has_assigned_word(text: str) -> bool:
    """A cheap look for what the pattern needs; a loop over the words would cost more than the words."""
    return (
        ("key" in text or "KEY" in text or "Key" in text or "ecret" in text or "ECRET" in text)
        or ("assw" in text or "ASSW" in text)
        or ("oken" in text or "OKEN" in text)
    )


def _scrub_paths(text: str, rules: Rules, counts: Counter[str]) -> str:
    if "/" not in text:
        return text
    if "-packages" in text:
        text = _scrub_environments(text, counts)
    for folder, placeholder in rules.folders:
        if folder in text:
            text = _sub(_folder_pattern(folder), placeholder, text, "paths", counts)
    if "/home/" in text or "/Users/" in text:
        text = _sub(_HOMES, "<home>", text, "paths", counts)
    if "/root" in text:
        text = _sub(_ROOT_HOME, "<home>", text, "paths", counts)
    if "/var/folders/" in text:
        text = _sub(_MAC_TEMP, "<tmp>", text, "paths", counts)
    if "/tmp/pytest-of-" in text:
        text = _sub(_PYTEST_TEMP, "<tmp>", text, "paths", counts)
    return text


def _scrub_environments(text: str, counts: Counter[str]) -> str:
    """What stands before lib/python3…/site-packages in an absolute path; by hand, as a pattern would be quadratic."""
    pieces, done = [], 0
    for match in _PACKAGES.finditer(text):
        begin = end = match.start()
        while begin > done and end - begin < PATH_CHARS and text[begin - 1] not in _ENDS:
            begin -= 1
        slash = text.find("/", begin, end)
        absolute = slash == begin or text[begin:slash] in ("-I", "-L", "-B") or text[slash - 1 : slash] == "="
        if slash < 0 or not absolute or text.startswith(_OF_SANDBOXES, slash) or text[slash - 1 : slash] == ">":
            continue
        pieces += [text[done:slash], "<env>"]
        done = end
        counts["paths"] += 1
    return "".join([*pieces, text[done:]])


def _scrub_names(text: str, rules: Rules, counts: Counter[str]) -> str:
    for kind, names in (("<user>", rules.users), ("<host>", rules.hosts), ("<word>", rules.words)):
        for name in names:
            if name in text:
                text = _sub(_name_pattern(name, kind), kind, text, "names", counts)
    return text


def _sub(pattern: re.Pattern[str], replacement: str, text: str, kind: str, counts: Counter[str]) -> str:
    text, found = pattern.subn(replacement, text)
    if found:
        counts[kind] += found
    return text


@lru_cache(maxsize=4096)
def _folder_pattern(folder: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.>]){re.escape(folder)}(?![\w-])|(?<=-[ILB]){re.escape(folder)}(?![\w-])")


@lru_cache(maxsize=1024)
def _name_pattern(name: str, kind: str) -> re.Pattern[str]:
    """A user's name that could be a word of the language, or of code, only where it must be one."""
    quoted = re.escape(name)
    if kind == "<word>":
        return re.compile(quoted)
    whole = rf"(?<![\w-]){quoted}(?![\w-])"
    if kind == "<host>" or len(name) >= _DISTINCTIVE_CHARS or re.search(r"[\d._-]", name):
        return re.compile(whole)
    return re.compile(
        rf"(?<![\w-]){quoted}(?=@[\w-])|(?<=[0-9]\(){quoted}(?=\))|(?<=USER[=:]){quoted}(?!\w)"
        rf"|(?<=LOGNAME=){quoted}(?!\w)|(?<=/){quoted}(?=/)|(?<=[-rwxst] \d ){quoted}(?= )|(?<=-of-){quoted}(?!\w)"
    )


def _root(path: str) -> str | None:
    """The first two components of an absolute path, where they can be a folder of the host's owner."""
    parts = PurePosixPath(path).parts
    if len(parts) < 3 or parts[0] != "/" or _is_system(path) or parts[1] in ("home", "Users", "root"):
        return None
    if parts[1] == "tmp" and parts[2].startswith("agent-"):
        return None
    return str(PurePosixPath(*parts[:3]))


def _is_system(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return len(parts) < 2 or parts[1] in _SYSTEM


def recorded_paths(record: Any) -> set[str]:
    """Absolute paths among the texts of a record (a backend's or sandbox's description)."""
    if isinstance(record, str):
        return {record} if record.startswith("/") and "\n" not in record else set()
    if isinstance(record, dict):
        return {path for item in record.values() for path in recorded_paths(item)}
    if isinstance(record, list | tuple):
        return {path for item in record for path in recorded_paths(item)}
    return set()
