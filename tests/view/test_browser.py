"""The pages in a real browser: drawn, sorted and filtered by script; nothing loaded, nothing complained about."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from stored_runs import RECORDED, collection, hostile_run

from agent.view.site import write_view

pytest.importorskip("plotly", reason="plotly is not installed (the extra [view])")

COLUMN = """
const index = arguments[0], rows = Array.from(document.querySelectorAll('#runs tbody tr')).filter((r) => !r.hidden);
return rows.map((r) => r.cells[index].dataset.v ?? r.cells[index].textContent.trim());
"""
TASK, REWARD, EAGER = 0, 3, 5
FOREIGN = "img, iframe, object, embed, form:not(#filters), link:not([rel=icon])"
HANDLERS = """
const has = (e) => e.getAttributeNames().some((name) => name.startsWith('on'));
return Array.from(document.querySelectorAll('*')).filter(has).length;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def overview(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder has a name that a careless link would break at."""
    folder = collection(tmp_path_factory.mktemp("view") / "runs #1 %20?")
    hostile_run(folder / "tasks" / "task-9-00000009" / "0" / "2026-11-30T1100-hostile")
    return write_view([folder]).page


def numbers(browser: Browser, column: int) -> list[float | None]:
    return [float(value) if value else None for value in browser.run(COLUMN, column)]


def drawn(browser: Browser, page: Path, fragment: str = "") -> None:
    browser.open(page, fragment)
    browser.wait_for("document.body.dataset.drawn === 'yes'")


def test_it_is_drawn_without_a_request_or_a_complaint(browser: Browser, overview: Path) -> None:
    browser.requests(), browser.complaints()
    drawn(browser, overview)
    plots = browser.run(
        "return Array.from(document.querySelectorAll('.plot')).map((p) => p.querySelectorAll('.xtick').length)"
    )
    assert len(plots) == 4 and all(plots), plots
    assert browser.complaints() == []
    assert {url.split(":")[0] for url in browser.requests()} <= {"file", "data"}


def test_heads_sort_and_what_is_unknown_comes_last(browser: Browser, overview: Path) -> None:
    drawn(browser, overview)
    for descending in (True, False):
        browser.click('th[data-key="eager"] button')
        values = numbers(browser, EAGER)
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=descending) and len(known) >= 4
        assert None in values and values[len(known) :] == [None] * (len(values) - len(known))
    assert browser.run("return document.querySelector('th[data-key=eager]').ariaSort") == "ascending"
    assert "sort=eager&dir=asc" in browser.run("return location.hash")


def test_filters_narrow_the_table_and_say_how_much_is_left(browser: Browser, overview: Path) -> None:
    drawn(browser, overview)
    everything = len(browser.run(COLUMN, TASK))
    name = RECORDED[1].parent.name
    browser.type("#f-q", f"{name.upper()} accepted")
    # The table follows the keys a moment later.
    browser.wait_for(r"/^[1-9]\d* of /.test(document.getElementById('count').textContent)")
    tasks = browser.run(COLUMN, TASK)
    assert 0 < len(tasks) < everything and all(name in task for task in tasks)
    assert browser.run("return document.getElementById('count').textContent") == f"{len(tasks)} of {everything} runs"
    browser.click("#filters button[type=reset]")
    browser.wait_for(f"document.getElementById('count').textContent === '{everything} runs'")


def test_an_address_brings_the_same_view_back(browser: Browser, overview: Path) -> None:
    browser.open(overview.parent / "tasks")  # another page first: only the part behind # would change otherwise
    drawn(browser, overview, "sort=reward&dir=desc&reward=3&min=1.5")
    assert set(browser.run(COLUMN, REWARD)) == {"3"}
    assert all(value is not None and value >= 1.5 for value in numbers(browser, EAGER))
    assert browser.run("return document.getElementById('f-min').value") == "1.5"


def test_links_lead_to_run_pages_and_back(browser: Browser, overview: Path) -> None:
    drawn(browser, overview)
    href = browser.run("const a = document.querySelector('#runs tbody a'); const h = a.href; a.click(); return h")
    browser.wait_for("document.body.classList.contains('run')")
    assert browser.run("return location.href") == href
    assert browser.run("return document.querySelectorAll('section.turn').length") > 3
    browser.run("document.querySelector('.path a').click()")
    browser.wait_for("document.body.classList.contains('collection')")


@pytest.mark.parametrize("width", [1400, 390])
def test_no_page_is_wider_than_the_window_and_nothing_jumps(browser: Browser, overview: Path, width: int) -> None:
    browser.resize(width, 900)
    runs = sorted(overview.parent.rglob("*/view.html"))
    for page in (overview, runs[0], runs[-1]):
        browser.open(page)
        browser.wait_for("document.readyState === 'complete'")
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], (page, wide)
        assert layout_shift(browser) <= 0.01
    browser.resize(1400, 1000)


def layout_shift(browser: Browser) -> Any:
    """Cumulative layout shift as web vitals has it: entries without a user's input before."""
    return browser.run_async(
        "const done = arguments[0]; let sum = 0;"
        "const add = (list) => list.getEntries().forEach((e) => { if (!e.hadRecentInput) sum += e.value; });"
        "new PerformanceObserver(add).observe({type: 'layout-shift', buffered: true});"
        "setTimeout(() => done(sum), 400);"
    )


def test_a_hostile_run_scripts_neither_its_page_nor_the_overview(browser: Browser, overview: Path) -> None:
    run = next(overview.parent.rglob("*hostile/view.html"))
    for page, scripts in ((overview, 3), (run, 0)):
        browser.complaints()
        browser.open(page)
        browser.wait_for("document.body.dataset.drawn === 'yes'" if scripts else "document.readyState === 'complete'")
        assert "pwned" not in browser.run("return document.title.split('</script>')[0]")
        assert browser.run("return document.title") != "pwned"
        assert browser.run("return document.scripts.length") == scripts
        assert browser.run(f"return document.querySelectorAll('{FOREIGN}').length") == 0
        assert browser.run(HANDLERS) == 0
        # A policy that had to step in would be on the console: escaping alone must do.
        assert browser.complaints() == []


def test_a_script_that_got_into_a_page_would_not_run(browser: Browser, overview: Path, tmp_path: Path) -> None:
    """The second wall: what the policy is for, shown on pages with a hole made into them."""
    run = next(overview.parent.rglob("*hostile/view.html"))
    for number, page in enumerate((overview, run)):
        holed = tmp_path / f"holed-{number}.html"
        text = page.read_text(encoding="utf-8")
        holed.write_text(text.replace("</body>", "<script>document.title='pwned'</script></body>"), encoding="utf-8")
        browser.open(holed)
        browser.wait_for("document.readyState === 'complete'")
        assert browser.run("return document.title") != "pwned"
        assert any("Content Security Policy" in message for message in browser.complaints())


def test_everything_can_be_reached_by_keyboard(browser: Browser, overview: Path) -> None:
    drawn(browser, overview)
    unreachable = browser.run(
        "return Array.from(document.querySelectorAll('th button, #filters input, #filters select, tbody a, summary'))"
        ".filter((e) => e.tabIndex < 0 || e.disabled).length"
    )
    assert unreachable == 0
    scrolling = browser.run(
        "return Array.from(document.querySelectorAll('.rows, pre, .scroll')).filter((e) => e.tabIndex < 0).length"
    )
    assert scrolling == 0
