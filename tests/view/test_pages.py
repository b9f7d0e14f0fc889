"""What pages show of runs that are whole, unfinished, damaged, hostile or from another version; and the numbers."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from stored_runs import RECORDED, change, collection, copy_run, hostile_run, read_events, write_events

from agent.errors import ConfigError
from agent.judging.reports import Speedup
from agent.trajectory.folder import RunFolder
from agent.view.code import Highlighter, diff, output
from agent.view.figures import Share, best_of_task, fast_p, figures, median_best
from agent.view.pages import data_block
from agent.view.reading import read_run
from agent.view.rows import Row, Timed, mark_superseded, row_of
from agent.view.run_page import run_page
from agent.view.site import write_view
from agent.view.turns import Files
from agent.view.verdicts import Judged, record_of

pytest.importorskip("plotly", reason="plotly is not installed (the extra [view])")

TAGS = frozenset(
    [
        "html",
        "head",
        "meta",
        "link",
        "title",
        "style",
        "body",
        "a",
        "header",
        "p",
        "h1",
        "h2",
        "h3",
        "span",
        "ul",
        "ol",
        "li",
        "div",
        "nav",
        "details",
        "summary",
        "main",
        "section",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "dl",
        "dt",
        "dd",
        "figure",
        "svg",
        "line",
        "text",
        "g",
        "circle",
        "figcaption",
        "article",
        "pre",
        "b",
        "code",
        "footer",
        "sub",
        "small",
        "form",
        "label",
        "input",
        "select",
        "option",
        "button",
        "output",
        "noscript",
        "script",
    ]
)


class Parsed(HTMLParser):
    """Tags, attributes and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.scripts += tag == "script"
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(run: Path, **options: Any) -> str:
    stored = read_run(RunFolder(run))
    return run_page(stored, row_of(stored), **options)


def kept(tmp_path: Path, name: str = "mlp-epilogue") -> Path:
    source = next(run for run in RECORDED if run.parent.name == name)
    return copy_run(source, tmp_path / "2026-11-30T1000-run", name)


def told(run: Path, rival: str) -> str:
    """An interval of the recorded verdict as a page has it."""
    found = json.loads((run / "verdict.json").read_text())["best"]["speedup"][rival]
    return f"{found['ratio']:.2f}× {found['low']:.2f}–{found['high']:.2f} faster"


def words(page: str) -> str:
    return " ".join(Parsed(page).text.split())


def test_a_run_page_says_verdict_intervals_turns_and_code(tmp_path: Path) -> None:
    run = kept(tmp_path)
    page = page_of(run)
    text = words(page)
    assert "accepted, reward 3: faster than eager and torch.compile" in text
    assert told(run, "eager") in text and told(run, "compile") in text
    assert "inconclusive" in text and "Turn 4" in text and "the model submitted its work" in text
    assert '<span class="kt">float</span>' in page and '<span class="a">+' in page
    assert re.search(r"<details class=\"block\"><summary>output, 31 lines</summary>", page)
    assert "which is not stored" not in text
    change(run / "verdict.json", lambda record: record | {"counts": "final"})
    assert "which is not stored with this run; this is best/" in words(page_of(run))


def test_every_ratio_stands_beside_its_interval(tmp_path: Path) -> None:
    page = page_of(kept(tmp_path))
    ratios = re.findall(r'<span class="ratio">[^<]*</span>(.{0,40})', page)
    assert len(ratios) >= 6 and all(rest.startswith(' <span class="ci">') for rest in ratios)


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "2026-11-30T1000-hostile")
    page = page_of(run)
    parsed = Parsed(page)
    assert parsed.tags <= TAGS and parsed.scripts == 0
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    links = {value for name, value in parsed.attributes if name in ("href", "src", "action")}
    assert all(link.startswith(("#", "data:,", "../")) for link in links), links
    assert "\\x1b[31m" in parsed.text and "\\u202e" in parsed.text and "{{7*7}}" in parsed.text
    page.encode("utf-8")
    overview = write_view([tmp_path], output=tmp_path / "out" / "x.html").page.read_text(encoding="utf-8")
    parsed = Parsed(overview)
    assert parsed.tags <= TAGS and parsed.scripts == 3
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]


def test_data_cannot_end_its_element() -> None:
    block = str(data_block({"a": "</script><!--<script>&\u2028"}))
    assert not set("<>&\u2028") & set(block)
    assert json.loads(block) == {"a": "</script><!--<script>&\u2028"}


def test_an_unfinished_run_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    run = kept(tmp_path)
    (run / "verdict.json").unlink()
    events = (run / "events.jsonl").read_bytes()
    (run / "events.jsonl").write_bytes(events[: len(events) // 2])
    text = words(page_of(run))
    assert "no verdict yet" in text and "the last line is torn" in text and "Turn 2" in text


@pytest.mark.parametrize("name", ["task.json", "config.json", "verdict.json", "events.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"\xff\xfe\n", b"[" * 100_000, b"null\n"])
def test_no_damaged_file_is_the_end_of_a_page(tmp_path: Path, name: str, content: bytes) -> None:
    run = kept(tmp_path)
    (run / name).write_bytes(content)
    page = page_of(run)
    assert "This run is shown with what there is" in page or (name, content) == ("events.jsonl", b"")


def test_a_damaged_line_costs_that_line_only(tmp_path: Path) -> None:
    run = kept(tmp_path)
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = b"not json\n"
    (run / "events.jsonl").write_bytes(b"".join(lines))
    text = words(page_of(run))
    assert "events.jsonl: line 5 is damaged" in text and "Turn 4" in text and "accepted, reward 3" in text


def test_events_of_another_version_are_shown_without_what_is_unknown(tmp_path: Path) -> None:
    run = kept(tmp_path)
    events = read_events(run)
    for event in events:
        event["of_tomorrow"] = {"x": 1}
        if event["type"] == "reply":
            event["reply"]["mood"] = "good"
    events.insert(3, {"type": "dream", "t": 0.0})
    write_events(run, events)
    text = words(page_of(run))
    assert "has fields of another version" in text and "line 4 cannot be read" in text
    assert "Turn 4" in text and "more" in text


@pytest.mark.parametrize(
    "change_to",
    [
        {"reward": "3"},
        {"reward": True},
        {"counts": "none of them"},
        {"best": [], "final": 7},
        {"reason": "a reason of tomorrow"},
        {"errors": "x", "judge": 5},
        {"final": {"verdict": "accepted", "speedup": {"eager": {"ratio": "1", "low": [], "high": {}, "call": 0}}}},
    ],
    ids=str,
)
def test_a_verdict_with_anything_in_it_is_shown(tmp_path: Path, change_to: dict[str, Any]) -> None:
    run = kept(tmp_path)
    change(run / "verdict.json", lambda record: record | change_to)
    assert "Turn 4" in page_of(run)
    write_view([tmp_path])


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-1.0", "1e999"])
def test_a_ratio_that_is_none_is_not_shown(bad: str) -> None:
    speedup = json.loads(f'{{"ratio": 2.0, "low": 1.5, "high": {bad}, "call": "faster"}}')
    judged = {"verdict": "accepted", "reward": 2, "speedup": {"eager": speedup}}
    record = record_of({"reason": "submitted", "reward": 2, "best": judged, "counts": "best"})
    assert record.judged is not None and record.judged.eager is None


def test_an_earlier_verdict_is_told(tmp_path: Path) -> None:
    run = kept(tmp_path)
    before = told(run, "eager")
    (run / "verdicts").mkdir()
    shutil.copy(run / "verdict.json", run / "verdicts" / "original.json")
    rejected = {"verdict": "rejected", "reward": -1, "reasons": [{"code": "numeric.mismatch", "detail": "off by one"}]}
    judge = {"agent_version": "9.9", "tools_sha256": "ab" * 32}
    change(
        run / "verdict.json",
        lambda r: r | {"reward": -1, "best": rejected, "final": None, "counts": "best", "judge": judge},
    )
    text = words(page_of(run))
    assert "rejected, reward -1" in text and "numeric.mismatch off by one" in text
    assert f"original.json accepted, reward 3; {before} over eager" in text
    assert "by cuda-agent 9.9, tools abababababab" in text


def test_code_diffs_and_outputs_are_bounded() -> None:
    long = "x" * 5_000_000
    for html in (output(long), diff("+" + long), Highlighter().code(long, language="cpp")):
        assert len(html) < 100_000 and "left out" in html


def test_the_budget_ends_highlighting_not_the_code() -> None:
    highlighter = Highlighter(budget=30)
    first, second = (highlighter.code(f"int a{n} = 1;  // {n}", language="cpp") for n in (1, 2))
    assert '<span class="kt">int</span>' in first and "span" not in second and "int a2 = 1;  // 2" in second
    assert '<span class="kt">int</span>' in highlighter.code("int a1 = 1;  // 1", language="cpp")


def test_what_is_shown_is_what_was_written() -> None:
    text = "\n\n  int a;\n\n\n"
    html = str(Highlighter().code(text, language="cpp"))
    assert words_of(html.split("<pre tabindex")[1]) == text


@pytest.mark.parametrize(
    "text", ["", "\\", '"', "'", "/*", "/* * /", 'R"(x)"', "#\n# if 1\n", "1e+5f .5 0x1p-3 1'000", "é°\u202e"]
)
def test_the_lexer_of_kernels_keeps_every_character(text: str) -> None:
    from agent.view.kernel_lexer import KernelLexer

    for whole in (text, f"{text}\nint a; // {text}\n", text * 50):
        tokens = list(KernelLexer().get_tokens_unprocessed(whole))
        assert "".join(value for _, _, value in tokens) == whole
        assert all(whole.startswith(value, at) for at, _, value in tokens)


def test_kernels_are_highlighted() -> None:
    html = str(Highlighter().code("__global__ void k(float *a) { a[threadIdx.x] = 1.f; } // <x>", language="cpp"))
    kinds = {"kr": "__global__", "kt": "void", "nf": "k", "nb": "threadIdx", "m": "1.f", "c": "// &lt;x&gt;"}
    for kind, word in kinds.items():
        assert f'<span class="{kind}">{word}</span>' in html


def words_of(html: str) -> str:
    return Parsed(f"<pre tabindex{html}").text


def test_a_collection_has_an_overview_and_a_page_for_each_run(tmp_path: Path) -> None:
    folder = collection(tmp_path / "c")
    written = write_view([folder])
    assert written.page == folder / "view.html" and written.runs == 7
    page = written.page.read_text(encoding="utf-8")
    links = re.findall(r'<a href="(tasks/[^"]+)"', page)
    assert len(links) == 7 and all((folder / link).is_file() for link in links)
    assert "3 tasks × 2 samples: 5 of 6 have a result, 1 to go" in page
    assert 'data-state="superseded"' in page and "Tasks that were refused" in page
    back = re.search(r'<a href="([^"]+)">All runs</a>', (folder / links[0]).read_text(encoding="utf-8"))
    assert back and (folder / links[0]).parent.joinpath(back[1]).resolve() == written.page


def test_an_output_elsewhere_leaves_the_runs_alone_and_can_be_moved(tmp_path: Path) -> None:
    folder = collection(tmp_path / "c")
    written = write_view([folder], output=tmp_path / "site" / "overview.html")
    assert not list(folder.rglob("*.html"))
    shutil.move(tmp_path / "site", tmp_path / "moved")
    page = (tmp_path / "moved" / "overview.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="(overview-runs/[^"]+)"', page)
    assert len(links) == written.run_pages == 7 and all((tmp_path / "moved" / link).is_file() for link in links)


def test_side_by_side_or_not_the_pages_are_the_same(tmp_path: Path) -> None:
    folder = collection(tmp_path / "c", tasks=7)
    made = {}
    for workers in (1, 2):
        write_view([folder], output=tmp_path / str(workers), workers=workers)
        made[workers] = {p.name: undated(p) for p in (tmp_path / str(workers)).rglob("*.html")}
    assert made[1] == made[2] and len(made[1]) == 16


def undated(page: Path) -> str:
    return re.sub(r"on \d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page.read_text(encoding="utf-8"))


def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run"):
        write_view([tmp_path])
    with pytest.raises(ConfigError, match="not a folder"):
        write_view([tmp_path / "nowhere"])
    for name in ("a", "b"):
        collection(tmp_path / name, tasks=1)
    with pytest.raises(ConfigError, match="several folders"):
        write_view([tmp_path / "a", tmp_path / "b"])
    assert write_view([tmp_path / "a", tmp_path / "b"], output=tmp_path / "o").runs == 6
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "x", Path("/proc/x.html")):
        with pytest.raises(ConfigError, match="cannot write"):
            write_view([tmp_path / "a"], output=place)


def speedup(ratio: float, low: float = 0.0, high: float = 0.0) -> Speedup:
    return Speedup(ratio=ratio, low=low or ratio * 0.9, high=high or ratio * 1.1, call="faster")


def row(task: str, eager: Speedup | None, *, reward: int | None = 2, timed: tuple[Timed, ...] = (), **more: Any) -> Row:
    judged = Judged("accepted" if eager else "rejected", reward, eager=eager)
    fixed = {"path": "/c/r", "run_id": "r", "task_sha256": "", "sample": None, "model": "", "state": "settled"}
    spent = {"turns": 1, "tokens": 10, "cost_usd": None, "wall_s": 1.0, "began_at": 0.0, "notes": ()}
    return Row(
        **(fixed | spent | {"task": task, "judged": judged, "reward": reward, "timed": timed, "reason": ""} | more)
    )


def test_fast_p_is_the_share_of_all_tasks_with_their_best_sample() -> None:
    rows = [row("a", speedup(1.2)), row("a", speedup(2.5)), row("b", speedup(1.4)), row("c", None, reward=-1)]
    best = best_of_task(rows, "eager")
    assert [s.ratio if s else None for s in best] == [2.5, 1.4, None]
    share = [fast_p(best, p, lambda s: s.ratio) for p in (1.0, 1.4, 2.0, 3.0)]
    assert share == [pytest.approx(x) for x in (2 / 3, 1 / 3, 1 / 3, 0.0)]
    assert fast_p([], 1.0, lambda s: s.ratio) == 0.0


def test_shares_have_wilson_intervals() -> None:
    # Newcombe (1998), table I: 81 of 263 has the score interval 0.2553 to 0.3662; 0 of 20: 0 to 0.1611.
    assert Share(81, 263).interval == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert Share(0, 20).interval == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert Share(0, 0).interval == (0.0, 1.0)


def test_the_line_over_turns_is_the_median_of_the_best_so_far() -> None:
    def timed(*pairs: tuple[int, float]) -> tuple[Timed, ...]:
        return tuple(Timed(turn, speedup(ratio), "eager") for turn, ratio in pairs)

    rows = [row("a", None, timed=timed((1, 1.0), (3, 0.5), (4, 3.0))), row("b", None, timed=timed((2, 2.0)))]
    assert median_best(rows) == ([1, 2, 3, 4], [1.0, 1.5, 1.5, 2.5])


def test_of_several_attempts_at_a_sample_the_newest_with_a_result_counts() -> None:
    def states(*attempts: tuple[float, str]) -> list[str]:
        made = [
            row("a", None, path=f"/c/tasks/a-1/0/{at}", sample=0, began_at=at, state=state) for at, state in attempts
        ]
        return [r.state for r in mark_superseded(made)]

    assert states((2.0, "settled"), (1.0, "settled"), (3.0, "settled")) == ["superseded", "superseded", "settled"]
    assert states((1.0, "settled"), (2.0, "not judged")) == ["settled", "superseded"]
    assert states((1.0, "not judged"), (2.0, "unfinished")) == ["superseded", "unfinished"]


def test_costs_are_dollars_only_where_every_run_has_a_price() -> None:
    priced = [row("a", speedup(2.0), cost_usd=0.5), row("b", speedup(2.0), cost_usd=0.25)]
    figure = figures(priced)["plot-cost"]
    assert figure["data"][0]["x"] == [0.5, 0.25] and "dollars" in figure["layout"]["xaxis"]["title"]["text"]
    figure = figures([*priced, row("c", None)])["plot-cost"]
    assert figure["data"][0]["x"] == [10, 10, 10] and "tokens" in figure["layout"]["xaxis"]["title"]["text"]


def test_plots_of_nothing_are_empty_plots() -> None:
    for rows in ([], [row("a", None, state="unfinished", reward=None)]):
        assert set(figures(rows)) == {"plot-reward", "plot-turns", "plot-fast", "plot-cost"}


def test_texts_of_few_lines_that_come_often_are_not_compared() -> None:
    """difflib takes minutes for these."""
    files = Files()
    files.write("a.py", "\n".join(str(at % 100) for at in range(30_000)))
    assert files.since_last() == ""
    files.write("a.py", "\n".join(str(at * 7 % 100) for at in range(30_000)))
    assert "too much to compare" in files.since_last()
