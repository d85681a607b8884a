"""The output for a judged run directory: the verdict stands even if its report cannot be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from linkflap.harness.judging import page
from linkflap.harness.model.verdict import Anomaly, Document
from linkflap.harness.report import html
from linkflap.harness.report.document import read
from linkflap.spark_verify.inspect import lanes
from linkflap.spark_verify.verdict.judge import Judgement
from tests.unit.recorded_run import Recorded
from tests.unit.recorded_verdict import document


@dataclass(frozen=True)
class Judged:
    folder: Path
    document: Mapping[str, Any]
    judged: Document
    kept: Path
    anomalies: tuple[Anomaly, ...] = ()


def judged(root: Path, *renamed: tuple[str, str]) -> Judged:
    folder = Recorded(root / "run", seconds=1.0).write().close()
    text = (folder / "run.json").read_text()
    for old, new in renamed:
        assert old in text
        text = text.replace(old, new)
    (folder / "run.json").write_text(text)
    judged_document = document(folder, "unknown")
    return Judged(
        folder=folder, document=judged_document, judged=read(judged_document), kept=folder
    )


def test_of_a_topology_that_cannot_be_drawn_the_report_has_the_words(tmp_path: Path) -> None:
    one = judged(tmp_path, ('"destination": "B"', '"destination": "Q"'))
    assert page.write(cast(Judgement, one)) == []
    assert "A-&gt;Q" in (one.folder / html.NAME).read_text()


def test_a_report_that_cannot_be_drawn_is_left_out_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = judged(tmp_path)
    (one.folder / html.NAME).write_text("of an older judgement")

    def undrawable(*_: object, **__: object) -> str:
        raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr(html, "payload", undrawable)
    (said,) = page.write(cast(Judgement, one))
    assert "\n" not in said
    assert said.startswith(
        f"{one.folder / html.NAME} is left out, for what the run directory says cannot be drawn "
        "(Over"
    )
    assert not (one.folder / html.NAME).exists()


def test_a_part_that_cannot_be_drawn_is_left_out_of_the_report_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undrawable(*_: object) -> None:
        raise OverflowError("cannot convert float infinity to integer")

    one = judged(tmp_path)
    monkeypatch.setattr(lanes, "lanes", undrawable)
    (said,) = page.write(cast(Judgement, one))
    assert "\n" not in said
    assert "is without the offsets (OverflowError" in said
    text = (one.folder / html.NAME).read_text()
    assert 'id="timeline-chart"' in text
    assert 'id="lanes-chart"' not in text
