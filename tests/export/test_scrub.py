"""Scrubbing: what is taken out, what stays, and that doing it twice changes nothing more."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recorded_runs import RECORDED, TEXT, episode_at, make_task, write_run

from agent.export.export import Request, export_runs
from agent.export.formats import FORMATS
from agent.export.rows import RowSettings, Source
from agent.export.scrub import Host, Rules, recorded_paths, rules_for, scrub_json, scrub_text

HOST = Host(home="/home/annabel", user="annabel", name="gpu-box-7.example.org", temp="/tmp")
RUN = "/data/max/runs/2026-11-30T1200-relu-00000000"
RULES = rules_for(HOST, run=RUN, recorded=["/home/max/tasks/model.py", "/tmp/scratch-1/model.py"], words=["Acme"])


def scrub(text: str, rules: Rules = RULES) -> str:
    return scrub_text(text, rules, Counter())


KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8"
SECRETS = (
    KEY,
    "sk-ant-api03-" + "x9" * 20,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 8,
    "glpat-" + "a1B2" * 5,
    "xoxb-1234567890-abcdef",
    "AKIA" + "ABCD1234" * 2,
    "AIza" + "a1B2_" * 7,
    "hf_" + "aBcD" * 8,
    "nvapi-" + "a1B2" * 8,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.s1gn4tur3",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("frame", ["{}", "key is {}, keep it", '{{"key": "{}"}}', "export X={}\n", "(`{}`)"])
def test_key_like_strings_go(secret: str, frame: str) -> None:
    assert scrub(frame.format(secret)) == frame.format("<secret>")


def test_tokens_in_headers_urls_and_assignments_go() -> None:
    assert scrub("Authorization: Bearer abcdef0123456789") == "Authorization: Bearer <secret>"
    assert scrub("git clone https://max:hunter2@host/x.git") == "git clone https://<secret>@host/x.git"
    assert scrub("OPENAI_API_KEY=abcdefgh12345678") == "OPENAI_API_KEY=<secret>"
    assert scrub('"password": "correct-horse-1"') == '"password": "<secret>"'
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----"
    assert scrub(f"a {block} b") == "a <secret> b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/annabel/x.py", "<home>/x.py"),
        ("/home/someone-else/x.py", "<home>/x.py"),
        ("-I/home/max/include", "-I<home>/include"),
        ("/Users/Max/x", "<home>/x"),
        ("file:///root/model.py", "file://<home>/model.py"),
        ("see /root.", "see /root."),
        (f"{RUN}/workspace/model_new.py", "<run>/workspace/model_new.py"),
        ("/data/max/other", "<path>/other"),
        ("/tmp/scratch-1/model.py:3: error", "<tmp>/model.py:3: error"),
        ("/tmp/pytest-of-max/pytest-0/x", "<tmp>/pytest-0/x"),
        ("/var/folders/ab/xyz123/T/tmp1", "<tmp>/T/tmp1"),
        ("/srv/me/.venv/lib/python3.11/site-packages/torch/x.h", "<env>/lib/python3.11/site-packages/torch/x.h"),
        ("annabel@gpu-box-7:~$ ls", "<user>@<host>:~$ ls"),
        ("uid=1000(max) gid=1000(max)", "uid=1000(<user>) gid=1000(<user>)"),
        ("-rw-r--r-- 1 annabel annabel 12 x", "-rw-r--r-- 1 <user> <user> 12 x"),
        ("written for Acme", "written for <word>"),
    ],
)
def test_paths_and_names_of_the_host_go(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "/workspace/model_new.py",
        "/opt/agent-tools/verify.py",
        "/opt/venv/lib/python3.11/site-packages/torch/include/ATen/Tensor.h:12",
        "/usr/lib/python3/dist-packages/x",
        "/usr/local/cuda/include/cuda.h",
        "/tmp/agent-build/7e48/cpu_extension.so",
        "/tmp/home/.cache",
        "/tmp/bench.py",
        "/workspace/home/x",
        "fmaxf(max(a, b), x.max()) // max of both",
        "key = keys[i]; token = tokens[0]; password_length = 3",
        "task-sk-1 and risk-averse-optimisation-of-kernels",
        "https://docs.nvidia.com/cuda/",
        "std::make_pair(a, b)::first",
    ],
)
def test_what_belongs_to_the_sandbox_or_to_code_stays(text: str) -> None:
    assert scrub(text) == text


def test_what_is_counted() -> None:
    counts: Counter[str] = Counter()
    scrub_json({"a": [KEY, "/home/max/x", {"annabel": "Bearer abcdef0123456789"}], "n": 3}, RULES, counts)
    assert counts == {"secrets": 2, "paths": 1, "names": 1}


def test_lone_surrogates_become_replacement_characters() -> None:
    assert scrub("a\ud83d b \ud83d\ude00") == "a\ufffd b \U0001f600"


PIECES = st.sampled_from(
    [
        *SECRETS,
        "/home/max",
        "/root",
        RUN,
        "/data/max",
        "annabel",
        "gpu-box-7",
        "Bearer ",
        "://a:b@",
        "Acme",
        "password=",
    ]
)


@given(st.lists(PIECES | st.text(max_size=8), max_size=8).map("".join))
@example("/home//home/max/home/x")
@example("Bearer Bearer abcdef0123456789")
@example("password=password=abcdefghij1")
def test_scrubbing_twice_changes_nothing_more(text: str) -> None:
    once = scrub(text)
    counts: Counter[str] = Counter()
    assert scrub_text(once, RULES, counts) == once
    assert not counts


@given(st.lists(st.sampled_from(["a ", "x=1\n", "\t", "'", '"', "kernel<<<1, 2>>>"]), max_size=4).map("".join))
def test_a_key_goes_wherever_it_stands(around: str) -> None:
    assert KEY not in scrub(f"{around}{KEY}{around}") or around[-1:].isalnum()


def test_recorded_paths_are_found_in_descriptions() -> None:
    record = {"source": "/home/max/turns.md", "list": ["/a/b"], "text": "no /path", "n": 1}
    assert recorded_paths(record) == {"/home/max/turns.md", "/a/b"}


@pytest.mark.parametrize("run", RECORDED, ids=lambda path: path.parent.name)
def test_an_ordinary_conversation_is_left_as_it_is(run) -> None:  # otherwise ids would be withheld for nothing
    source = Source(RowSettings(host=HOST))
    assert not source.chat(episode_at(run)).scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG",
        "aws_session_token = FwoGZXIvYXdzEJr1234567890",
        'HF_TOKEN="abcd1234efgh5678"',
        "Authorization: Basic dXNlcjpwYXNzd29yZDEyMw==",
    ],
)
def test_keys_of_no_known_shape_go_where_their_name_says_so(text: str) -> None:
    assert scrub(text).strip('"').endswith("<secret>")


def test_a_long_line_without_a_blank_costs_no_time() -> None:
    """From each character on it would be minutes; what is done here is a million characters."""
    line = "key " + "a" * 1_000_000
    assert scrub(line) == line


def test_names_of_tasks_runs_and_models_are_scrubbed_wherever_they_stand(tmp_path: Path) -> None:
    task, backend = make_task("acme-relu", text=TEXT.format(op="relu")), {"kind": "openai", "model": "/srv/models/tiny"}
    write_run(tmp_path / "runs", task=task, backend=backend)
    for format in FORMATS:
        if FORMATS[format].unit != "pair":
            out = tmp_path / format
            export_runs(Request((tmp_path / "runs",), format, out, words=("acme",), jobs=1))
            for path in (path for path in out.rglob("*") if path.is_file()):
                assert b"acme" not in path.read_bytes() and "acme" not in path.name, path
                assert b"/srv/models" not in path.read_bytes(), path


@pytest.mark.parametrize(
    "piece", ["a", "key-", "/a", "/-", "eyJ", "://a:", "password=", "secret_", "annabel", "/home/"]
)
def test_a_long_line_without_a_blank_takes_no_quadratic_time(piece: str) -> None:
    """With a quadratic pattern these 400 kB would take hours, and the test would be stopped."""
    text = piece * (400_000 // len(piece))
    scrub(f"{text} -packages PRIVATE KEY-----")


def test_environments_of_the_host_go_and_those_of_the_sandbox_stay() -> None:
    packages = "lib/python3.11/site-packages/torch/include"
    for before, after in (
        ("-I/srv/me/.venv/", "-I<env>/"),
        ("PYTHONPATH=/srv/me/.venv/", "PYTHONPATH=<env>/"),
        ("'/srv/me/.venv/", "'<env>/"),
        ("-I/opt/venv/", "-I/opt/venv/"),
        ("relative/.venv/", "relative/.venv/"),
    ):
        assert scrub(before + packages) == after + packages
