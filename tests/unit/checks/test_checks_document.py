"""docs/checks.md equals the declarations of the checks."""

from __future__ import annotations

from pathlib import Path

from linkflap.harness.guarantees import ALLOWED
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.checks.document import render
from linkflap.spark_verify.facts.run_guarantees import NAMES

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), (
        "write it again: python -m linkflap.spark_verify.checks.document > docs/checks.md"
    )


def test_the_page_has_every_check_kind_and_allowance() -> None:
    page = PAGE.read_text()
    for check in REGISTRY.values():
        assert f"## {check.name}\n" in page
        for kind in check.anomalies:
            assert f"| {kind.name} | {kind.meaning} | {kind.smallest} |" in page
    assert all(f"**{name}**" in page for name in NAMES)
    assert all(line.citation in page for lines in ALLOWED.values() for line in lines)
