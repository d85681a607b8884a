"""Reports on paper and on phones: nothing is cropped, dark, or without its column's name."""

from __future__ import annotations

from itertools import combinations, pairwise

from playwright.sync_api import FloatRect

from tests.unit.browser import PHONE, WIDE, Seen
from tests.unit.report_browser.judged_reports import DATA
from tests.unit.report_browser.legible import TOO_FAINT

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
