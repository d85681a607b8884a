"""The report in a browser: legible in light and dark, on a phone and by keyboard; nothing is asked
for, no other script runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser

from linkflap.harness.model.events import Note
from linkflap.judging.page import about
from linkflap.report import html
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.inspect import lanes
from linkflap.spark_verify.verdict.judge import Judgement
from tests.unit.browser import LIGHT_AND_DARK, PHONE, WIDE, Seen
from tests.unit.report_browser.judged_reports import DATA, INVALID, VALID
from tests.unit.report_browser.legible import CROPPED, TOO_FAINT

HOSTILE = '</script><img src=x onerror=alert(1)><!--<script>alert("2")</script>&quot;\u2028'
"""As what a run calls its topics, clients and errors."""


@pytest.mark.parametrize("name", [*INVALID, *VALID])
def test_it_fits_is_legible_and_asks_for_nothing(
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


def test_what_follows_is_counted_on_the_first_screen(
    seen: Seen, reports: dict[str, Judgement]
) -> None:
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


def test_it_works_by_keyboard(seen: Seen) -> None:
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
    assert "docs/checks.md#lost-write" in shown
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
    page = html.page(folder, document, replace(beside, lanes=lanes, drawing=HOSTILE))
    events = [Note(time=1, about=HOSTILE, name=HOSTILE, data={HOSTILE: HOSTILE})]
    assert HOSTILE not in html.script_safe(events)
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


def test_of_a_long_run_what_is_only_counted_does_not_cover_a_hole(
    browser: Browser, reports: dict[str, Judgement], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost batch is a hole among batches that are drawn one by one; further away they are
    counted, and can be selected."""
    monkeypatch.setattr(lanes, "RAW", 40)
    monkeypatch.setattr(lanes, "AROUND", (2,))
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
