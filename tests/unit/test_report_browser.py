"""The report in a browser (Debian's Chromium, driven by Playwright): legible in light and dark, on
paper, on a phone and by keyboard; its search; no other script runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from playwright.sync_api import Browser, FloatRect, Page, sync_playwright

from linkflap.harness.model.events import Note
from linkflap.judging.page import about
from linkflap.report import html
from linkflap.report.page_data import script_safe
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.inspect import log_lanes
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import judged_again
from tests.faithful.mutations import CATALOGUE
from tests.faithful.spec import spec
from tests.faithful.stories import story

# A headless Chromium for tests that look and click: Debian's package, driven by Playwright.
# Nothing is downloaded.


SAYS_NO = "LINKFLAP_NO_BROWSER"
LIGHT_AND_DARK: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDE, PHONE = (1440, 900), (390, 844)


def executable() -> str:
    """The path of Chromium. Without one, the test fails, or is skipped if the environment says that
    there is none."""
    if reason := os.environ.get(SAYS_NO):
        pytest.skip(f"no browser: {reason}")
    found = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if found is None:
        pytest.fail(
            f"no Chromium was found; install the package chromium, or set {SAYS_NO} to a reason",
            pytrace=False,
        )
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser, closed after the block."""
    with sync_playwright() as playwright:
        # Root has no user namespaces in many containers; the pages are our own files.
        browser = playwright.chromium.launch(
            executable_path=executable(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """An open report, with every error and request of the page."""

    def __init__(self, browser: Browser, path: Path) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]}, offline=True)
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=60_000)

    def close(self) -> None:
        """Closes the page and what it kept."""
        self.page.context.close()


# What is looked for in a page: text that is too faint, and what goes beyond its edge.
TOO_FAINT = """() => {
  const parse = (text) => {
    const m = text.match(/color\\(srgb ([\\d.]+) ([\\d.]+) ([\\d.]+)(?: \\/ ([\\d.]+))?\\)/);
    if (m) return [m[1] * 255, m[2] * 255, m[3] * 255, m[4] === undefined ? 1 : +m[4]];
    const n = text.match(/[\\d.]+/g).map(Number);
    return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1];
  };
  const light = ([r, g, b]) => {
    const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map(linear);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (node) => {
    const layers = [];
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    const mix = (under, over) => under.map((v, k) => over[k] * over[3] + v * (1 - over[3]));
    return layers.reverse().reduce(mix, [255, 255, 255]);
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].filter((c) => c.nodeType === 3);
    const text = texts.map((c) => c.textContent.trim()).join("");
    const apart = node.closest("script, style, noscript, title, button:disabled");
    if (!text || apart || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize);
    const bold = +style.fontWeight >= 700;
    const ink = parse(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const least = size >= 24 || (bold && size >= 18.6) ? 3 : 4.5;
    if (ratio < least) found.push(`${ratio.toFixed(2)} ${text.slice(0, 40)}`);
  }
  return found;
}"""
"""Text whose contrast is less than WCAG 2 AA asks for."""


CROPPED = """() => [...document.querySelectorAll("#lanes-chart svg")].flatMap((svg) => {
  const edge = svg.getBoundingClientRect();
  const cropped = (box) => box.left < edge.left - 1 || box.right > edge.right + 1;
  const texts = [...svg.querySelectorAll("text")];
  const found = texts.filter((each) => cropped(each.getBoundingClientRect()));
  return found.map((each) => each.textContent);
})"""
"""Texts in the offsets that go beyond their edge."""


# Reports of judged runs, invalid and valid ones, and the data that their pages hold.
INVALID = (
    "taken-for-a-repeat",
    "mirrored-batch-lost",
    "aborted-was-mirrored",
    "tail-not-truncated",
    "commit-became-abort",
)


VALID = {
    "chain": {"shape": "chain"},
    "round-trip": {"shape": "round-trip"},
    "failover": {"shape": "failover"},
}


def written(folder: Path) -> Judgement:
    judgement = judged_again(folder)
    (folder / "verdict.json").write_bytes(msgspec.json.encode(judgement.document))
    html.write(folder, judgement.document, about(judgement, []))
    return judgement


DATA = "JSON.parse(document.getElementById('data').textContent)"


# A browser, and reports of judged runs for it.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    """Runs that are judged, with their reports."""
    folder = tmp_path_factory.mktemp("reports")
    runs = {name: story(spec(1, **shape)).write(folder / name) for name, shape in VALID.items()}
    for name in INVALID:
        made, afterwards = CATALOGUE[name].made(1)
        made.write(folder / name)
        if afterwards is not None:
            afterwards(folder / name)
        runs[name] = folder / name
    return {name: written(run) for name, run in runs.items()}


@pytest.fixture
def seen(browser: Browser, reports: dict[str, Judgement]) -> Iterator[Seen]:
    """The report of a run in which an id collision led to lost writes."""
    opened = Seen(browser, reports["taken-for-a-repeat"].folder / html.NAME)
    yield opened
    opened.close()
    assert opened.complaints == []


# The report in a browser: legible in light and dark, on a phone and by keyboard; nothing is
# asked for, no other script runs.
HOSTILE = '</script><img src=x onerror=alert(1)><!--<script>alert("2")</script>&quot;\u2028'
"""As what a run calls its topics, clients and errors."""


@pytest.mark.parametrize("name", [*INVALID, *VALID])
def test_report_fits_the_screen_is_legible_and_sends_no_request(
    browser: Browser, reports: dict[str, Judgement], name: str
) -> None:
    path, document = reports[name].folder / html.NAME, reports[name].document
    opened = Seen(browser, path)
    for size in (WIDE, PHONE):
        opened.page.set_viewport_size({"width": size[0], "height": size[1]})
        assert first_screen(opened, size[1]) == (document["cause"] or None), size
    opened.page.evaluate(
        "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
    )
    for size in (PHONE, WIDE):
        opened.page.set_viewport_size({"width": size[0], "height": size[1]})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert opened.page.evaluate(CROPPED) == [], size
    for scheme in LIGHT_AND_DARK:
        opened.page.emulate_media(color_scheme=scheme)
        assert opened.page.evaluate(TOO_FAINT) == [], scheme
    assert (opened.complaints, opened.asked) == ([], [path.as_uri()])
    opened.close()


def first_screen(opened: Seen, height: int) -> str | None:
    """The first cause, if all of it is on the first screen and what follows is named there; None
    where there is none."""
    cause, follows = opened.page.locator(".cause"), opened.page.locator(".follows li")
    box = cause.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < height
    if not opened.page.locator(".top.invalid").count():
        return None
    assert all(
        (at := each.bounding_box()) is not None and at["y"] + at["height"] < height
        for each in follows.all()
    )
    assert "orders-" in cause.inner_text()
    return cause.inner_text()


def test_first_screen_counts_the_consequences(seen: Seen, reports: dict[str, Judgement]) -> None:
    document: dict[str, Any] = dict(reports["taken-for-a-repeat"].document)
    first = document["causes"][0]
    assert first["consequences"]
    follows = [f"{each['count']} {each['kind']}" for each in first["consequences"]]
    assert seen.page.locator(".follows li").all_inner_texts() == follows


def test_a_consequence_leads_to_its_anomaly_and_its_offsets(seen: Seen) -> None:
    link = seen.page.locator(".follows a").first
    number = link.get_attribute("data-anomaly")
    row = seen.page.locator(f"#a-{number}")
    assert not row.is_visible()
    link.click()
    assert row.is_visible()
    assert seen.page.evaluate("location.hash") == f"#a-{number}"
    assert seen.page.locator("#lanes-chart text").all_inner_texts()


def test_the_bytes_stand_beside_the_first_of_each_kind(
    seen: Seen, reports: dict[str, Judgement]
) -> None:
    seen.page.evaluate(
        "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
    )
    shown = seen.page.locator("pre", has_text="promised").all_inner_texts()
    document: dict[str, Any] = dict(reports["taken-for-a-repeat"].document)
    assert len(shown) == len(
        {(a["check"], a["kind"]) for a in document["anomalies"] if not a["allowed"]}
    )
    assert all("batches of" in text for text in shown)
    assert any("plain-1" in text and " #" in text for text in shown), (
        "payloads are named by their clients"
    )


def test_an_anomaly_of_the_timeline_can_be_clicked(seen: Seen) -> None:
    mark = seen.page.locator("#timeline-chart a").first
    target = mark.get_attribute("href")
    mark.locator("path").click(force=True)
    assert seen.page.evaluate("location.hash") == target
    assert seen.page.locator(str(target)).is_visible()


def test_a_time_marks_its_offsets_and_offsets_their_time(seen: Seen) -> None:
    drag(seen, "#timeline-chart", 0.4, 0.7)
    assert "offsets written in it" in seen.page.locator("#timeline-readout").inner_text()
    dimmed = seen.page.locator('#lanes-chart rect[opacity="0.18"]')
    assert dimmed.count() > 0
    seen.page.locator("#timeline-chart").focus()
    seen.page.keyboard.press("Escape")
    assert dimmed.count() == 0
    drag(seen, "#lanes-chart", 0.2, 0.4)
    assert "written from" in seen.page.locator("#lanes-readout").inner_text()
    assert seen.page.locator("#lanes-zoom").is_enabled()


def drag(seen: Seen, chart: str, start: float, end: float) -> None:
    area = seen.page.locator(f"{chart} svg")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    y = box["y"] + min(box["height"] - 3, 30)
    seen.page.mouse.move(box["x"] + box["width"] * start, y)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] * end, y, steps=3)
    seen.page.mouse.up()


def test_report_works_by_keyboard(seen: Seen) -> None:
    before = seen.page.locator("#timeline-chart").inner_html()
    seen.page.locator("#timeline-chart").focus()
    seen.page.keyboard.press("+")
    assert seen.page.locator("#timeline-chart").inner_html() != before
    assert seen.page.locator("#timeline-all").is_enabled()
    seen.page.keyboard.press("Home")
    assert not seen.page.locator("#timeline-all").is_enabled()
    seen.page.locator(".follows a").first.focus()
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("location.hash").startswith("#a-")


def test_events_are_searched(seen: Seen) -> None:
    seen.page.locator("#events-query").fill("ghost-ack offset")
    rows = seen.page.locator("#events-rows tr").all_inner_texts()
    assert rows
    assert all("ghost-ack" in row for row in rows)
    seen.page.locator("#events-query").fill("no such words")
    assert seen.page.locator("#events-rows tr").count() == 0
    seen.page.locator('button[data-query="kind:promotion"]').click()
    assert any("promotion" in row for row in seen.page.locator("#events-rows tr").all_inner_texts())


def test_a_check_leads_to_its_anomalies_and_to_what_it_promises(seen: Seen) -> None:
    promised = seen.page.locator("#check-lost-write")
    assert not promised.get_attribute("open")
    link = seen.page.locator('a[href="#check-lost-write"]').first
    seen.page.evaluate(
        "document.querySelectorAll('details').forEach((each) => { each.open = "
        "!each.closest('table'); })"
    )
    link.click()
    assert promised.evaluate("(each) => each.open")
    shown, check = promised.inner_text(), REGISTRY["lost-write"]
    assert all(
        text in shown
        for text in (check.guarantee, check.source, check.unit, *sorted(check.follows))
    )
    assert all(text in shown for kind in check.anomalies for text in (kind.meaning, kind.smallest))
    assert "linkflap docs checks, lost-write" in shown
    assert seen.page.locator('tr:has(#check-lost-write) a[href^="#a-"]').count() == 1
    valid = seen.page.locator('td a[href="#check-uncommitted-read"]').first
    valid.click()
    assert seen.page.locator("#check-uncommitted-read").evaluate("(each) => each.open")


def test_hostile_names_are_text(
    browser: Browser, reports: dict[str, Judgement], tmp_path: Path
) -> None:
    judgement = reports["taken-for-a-repeat"]
    folder = tmp_path / "run"
    folder.symlink_to(judgement.folder)
    document = msgspec.json.decode(msgspec.json.encode(judgement.document))
    for anomaly in document["anomalies"]:
        anomaly |= {"topic": HOSTILE, "sentence": HOSTILE, "evidence": {HOSTILE: HOSTILE}}
    document |= {"cause": HOSTILE, "scenario": HOSTILE}
    document["causes"][0] |= {"sentence": HOSTILE, "cluster": HOSTILE}
    for check in document["checks"]:
        check["reason"] = HOSTILE
    beside = about(judgement, [])
    lanes = [
        {**lane, "topic": HOSTILE, "eras": [{**era, "owner": HOSTILE} for era in lane["eras"]]}
        for lane in beside.lanes
    ]
    page = html.page(folder, document, replace(beside, lanes=lanes))
    events = [Note(time=1, about=HOSTILE, name=HOSTILE, data={HOSTILE: HOSTILE})]
    assert HOSTILE not in script_safe(events)
    path = tmp_path / "hostile.html"
    path.write_text(page, encoding="utf-8")
    opened = Seen(browser, path)
    assert (opened.complaints, opened.asked) == ([], [path.as_uri()])
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator(".cause").inner_text().startswith("</script><img")
    assert opened.page.locator("#lanes-group option").first.inner_text().startswith("</script><img")
    opened.close()


def test_a_script_that_is_not_ours_does_not_run(
    browser: Browser, reports: dict[str, Judgement], tmp_path: Path
) -> None:
    """Should something ever be left unescaped, the policy lets nothing run that has not our
    script's hash."""
    path = tmp_path / "broken.html"
    page = (reports["taken-for-a-repeat"].folder / html.NAME).read_text()
    path.write_text(page.replace("<main>", "<script>document.title = 'owned'</script><main>", 1))
    opened = Seen(browser, path)
    assert opened.page.title() != "owned"
    assert any("Content Security Policy" in complaint for complaint in opened.complaints)
    opened.close()


def test_hole_in_a_long_run_is_drawn_among_counted_batches(
    browser: Browser, reports: dict[str, Judgement], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost batch is a hole among batches that are drawn one by one; further away they are
    counted, and can be selected."""
    monkeypatch.setattr(log_lanes, "RAW", 40)
    monkeypatch.setattr(log_lanes, "AROUND", (2,))
    judgement = reports["mirrored-batch-lost"]
    html.write(judgement.folder, judgement.document, about(judgement, []), into=tmp_path)
    opened = Seen(browser, tmp_path / html.NAME)
    lane = opened.page.evaluate(
        f"{DATA}.lanes.find((l) => l.cluster === 'B' && l.topic === 'A.orders' && l.partition "
        "=== 0)"
    )
    assert lane["bins"] is not None
    assert 0 < len(lane["base"]) < lane["batches"]
    opened.page.click("#lanes-all")
    all_of_it = opened.page.locator("#lanes-chart rect[data-counted]")
    assert all_of_it.count() > 0
    hole = judgement.judged.anomalies[0].offset
    counted = [json.loads(each.get_attribute("data-counted") or "") for each in all_of_it.all()]
    assert [
        span for span in counted if span[0] == "B" and span[1] < hole + 1 and span[2] > hole
    ] == []
    box = opened.page.locator("#lanes-chart svg").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 40, steps=3)
    opened.page.mouse.up()
    assert "written from" in opened.page.locator("#lanes-readout").inner_text()
    assert opened.complaints == []
    opened.close()


# Reports on paper and on phones: nothing is cropped, dark, or without its column's name.
LANES_OF = {WIDE: 1184, PHONE: 362}
"""Widths of the charts: the page's without its margins."""


def test_on_paper_nothing_is_cropped(seen: Seen) -> None:
    seen.page.emulate_media(media="print")
    assert not seen.page.locator("nav").is_visible()
    assert seen.page.locator(".cause").is_visible()
    assert seen.page.locator(".on-paper").is_visible()


def test_paper_is_light(seen: Seen) -> None:
    """Whatever the screen is: in the dark scheme too nobody prints black pages."""
    paper = "getComputedStyle(document.body).backgroundColor"
    seen.page.emulate_media(color_scheme="dark")
    assert seen.page.evaluate(paper) == "rgb(20, 24, 29)"
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert seen.page.evaluate(paper) == "rgb(255, 255, 255)"
    assert seen.page.evaluate(TOO_FAINT) == []


def test_paper_has_what_is_folded_on_the_screen(seen: Seen) -> None:
    """But for the bytes of what followed, whose command stands there, and what checks promise."""
    folded, charts = (
        seen.page.locator("details:not([open])"),
        seen.page.locator("#timeline-chart, #lanes-chart"),
    )
    before, wide = (
        folded.count(),
        [each.evaluate("(each) => each.clientWidth") for each in charts.all()],
    )
    assert before > 0
    seen.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    left = [each.get_attribute("id") or "" for each in folded.all()]
    assert all(name.startswith(("bytes-", "check-")) for name in left)
    named = seen.page.locator('details[id^="bytes-"]:not([open]) > summary').all_inner_texts()
    assert named
    assert all("linkflap explain" in text for text in named)
    assert seen.page.locator('details[id^="bytes-"][open]').count() == 1
    assert [each.evaluate("(each) => each.clientWidth") for each in charts.all()] == [700, 700]
    assert (seen.page.locator("#timeline-chart svg").get_attribute("viewBox") or "").startswith(
        "0 0 700 "
    )
    seen.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert folded.count() == before
    assert [each.evaluate("(each) => each.clientWidth") for each in charts.all()] == wide


def test_on_a_phone_rows_stand_as_lines_that_say_their_columns(seen: Seen) -> None:
    seen.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    row = seen.page.locator("#checks ~ .scroll tr:has(#check-lost-write)")
    cells = [box for cell in row.locator("> td").all() if (box := cell.bounding_box())]
    assert len(cells) == 6
    assert all(box["x"] + box["width"] <= PHONE[0] for box in cells)
    assert all(
        above["y"] + above["height"] <= below["y"] + 1 for above, below in pairwise(cells)
    ), "one below the other"
    labels = [cell.get_attribute("data-label") for cell in row.locator("> td").all()]
    assert labels == [None, None, "examined", "anomalies", "allowed", None]
    last = seen.page.locator("nav a").last.bounding_box()
    assert last is not None
    assert last["x"] < PHONE[0], "sections wrap"


def test_labels_in_the_offsets_do_not_overlap(seen: Seen) -> None:
    for size in (WIDE, PHONE):
        seen.page.set_viewport_size({"width": size[0], "height": size[1]})
        seen.page.locator(f'#lanes-chart svg[viewBox^="0 0 {LANES_OF[size]} "]').wait_for(
            timeout=60_000
        )
        boxes = [
            box
            for each in seen.page.locator("#lanes-chart text").all()
            if (box := each.bounding_box())
        ]
        assert boxes
        over = [(a, b) for a, b in combinations(boxes, 2) if crosses(a, b)]
        assert over == [], size


def crosses(one: FloatRect, other: FloatRect) -> bool:
    """Whether two texts lie over each other by more than the space around letters."""
    across = min(one["x"] + one["width"], other["x"] + other["width"]) - max(one["x"], other["x"])
    down = min(one["y"] + one["height"], other["y"] + other["height"]) - max(one["y"], other["y"])
    return across > 1 and down > 4


def test_on_a_phone_faults_have_numbers_and_a_legend(seen: Seen) -> None:
    legend, faults = (
        seen.page.locator("#timeline-faults span"),
        seen.page.evaluate(f"{DATA}.windows.map((w) => w.label)"),
    )
    assert faults
    assert legend.count() == 0, "beside the bars there is room for what they are"
    seen.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    legend.first.wait_for()  # by a locator: the page's policy refuses what waits by eval
    said = [text.partition(", from ")[0] for text in legend.all_inner_texts()]
    assert said == [f"{number} {fault}" for number, fault in enumerate(faults, start=1)]
    assert "1" in seen.page.locator("#timeline-chart g text").all_text_contents()


# Commits that are searched for in a report.
@pytest.fixture(scope="module")
def unmarked(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """A run in which a commit was acknowledged and its marker is not in one partition."""
    folder = tmp_path_factory.mktemp("unmarked") / "run"
    CATALOGUE["last-marker-lost"].made(1)[0].write(folder)
    return written(folder)


def asked(opened: Seen, query: str) -> list[str]:
    """The result of the search for a typed question."""
    field = opened.page.locator("#events-query")
    field.fill("")
    field.press_sequentially(query)
    return opened.page.locator("#events-rows tr").all_inner_texts()


def test_commits_without_a_marker_are_found_as_one_asks_for_them(
    browser: Browser, unmarked: Judgement
) -> None:
    (wrong,) = [
        (n, each)
        for n, each in enumerate(unmarked.judged.anomalies, start=1)
        if each.kind == "commit-unmarked"
    ]
    number, anomaly = wrong
    opened = Seen(browser, unmarked.folder / html.NAME)
    (row,) = asked(opened, "commit acknowledged not followed by marker")
    where = (
        f"on {anomaly.cluster}: commit acknowledged, {anomaly.topic}-{anomaly.partition} from "
        f"offset {anomaly.offset} on"
    )
    assert where in row
    assert str(anomaly.evidence["client"]) in row
    assert f"anomaly {number}" in row
    rest = asked(opened, "commit acknowledged followed by marker")
    assert len(rest) + 1 == len(asked(opened, '"commit acknowledged"'))
    assert all("then COMMIT marker of" in each for each in rest)
    assert where not in " ".join(rest)
    asked(opened, "commit acknowledged not followed by marker")
    opened.page.locator("#events-rows a").first.click()
    assert opened.page.evaluate("location.hash") == "#lanes"
    assert (
        opened.page.locator("#lanes-group option:checked").inner_text()
        == f"{anomaly.topic}-{anomaly.partition}"
    )
    opened.page.get_by_role("link", name=f"anomaly {number}", exact=True).click()
    assert opened.page.locator(f"#a-{number}").is_visible()
    opened.close()
    assert opened.complaints == []


def test_commits_that_were_aborted_are_found_by_an_example(
    browser: Browser, reports: dict[str, Judgement]
) -> None:
    judgement = reports["commit-became-abort"]
    wanted = [
        number
        for number, each in enumerate(judgement.judged.anomalies, start=1)
        if each.kind == "commit-aborted"
    ]
    assert wanted
    opened = Seen(browser, judgement.folder / html.NAME)
    opened.page.get_by_role("button", name="commit acknowledged followed by ABORT marker").click()
    links = opened.page.locator("#events-rows a[data-anomaly]").all()
    assert [int(link.get_attribute("data-anomaly") or 0) for link in links] == wanted
    assert opened.page.locator("#events-rows tr").count() == len(wanted)
    assert asked(opened, "commit acknowledged not followed by marker") == []
    assert len(asked(opened, "commit acknowledged not followed by COMMIT marker")) == len(wanted)
    opened.close()
    assert opened.complaints == []


def test_a_search_selects_by_kind_and_cluster(
    browser: Browser, reports: dict[str, Judgement]
) -> None:
    opened = Seen(browser, reports["failover"].folder / html.NAME)
    every = asked(opened, "")
    assert every
    promoted = asked(opened, "kind:promotion cluster:B")
    assert promoted
    assert all("promotion" in row for row in promoted)
    assert asked(opened, "kind:promotion cluster:nowhere") == asked(opened, "kind:promo") == []
    assert len(asked(opened, "kind:promo*")) == len(promoted)
    assert len(asked(opened, "kind:promotion followed by kind:failover")) == len(promoted)
    assert asked(opened, "kind:promotion not followed by kind:failover") == []
    assert asked(opened, "kind:failover followed by kind:promotion") == [], "what is later follows"
    starts = asked(opened, "kind:fault-start")
    assert len(asked(opened, "fault-start followed by fault-end")) == len(starts) == 2, (
        "each by its own end"
    )
    assert asked(opened, 'marker "not followed by"') == [], "in quotation marks they are words"
    assert len(asked(opened, "kind:promotion not followed by")) == len(promoted), (
        "not written to its end yet"
    )
    assert asked(opened, "operation:* client:nobody") == []
    opened.page.get_by_text("What can be asked").click()
    assert "X not followed by Y" in opened.page.locator("#events-help").inner_text()
    opened.close()
    assert opened.complaints == []
