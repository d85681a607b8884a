"""Commits that are searched for in a report."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from linkflap.report import html
from linkflap.spark_verify.verdict.judge import Judgement
from tests.faithful.mutations import CATALOGUE
from tests.unit.browser import Seen
from tests.unit.report_browser.judged_reports import written


@pytest.fixture(scope="module")
def unmarked(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """A run in which a commit was acknowledged and its marker is not in one partition."""
    folder = tmp_path_factory.mktemp("unmarked") / "run"
    CATALOGUE["last-marker-lost"].made(1)[0].write(folder)
    return written(folder)


def asked(opened: Seen, query: str) -> list[str]:
    """What the search shows once somebody has typed a question."""
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
