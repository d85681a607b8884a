"""A browser, and reports of judged runs for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from linkflap.report import html
from linkflap.spark_verify.verdict.judge import Judgement
from tests.faithful.mutations import CATALOGUE
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.unit.browser import Seen, chromium
from tests.unit.report_browser.judged_reports import INVALID, VALID, written


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
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
