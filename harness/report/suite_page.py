"""The page of a suite: one self-contained HTML file, failures first. Plain values in, text out;
nothing is fetched, no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup

from linkflap.harness.report.html import stylesheet, template

NAME: Final = "suite.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure: the runs that had it, what is known of it, the command that shows it,
    and files, by name."""

    kind: str
    runs: Sequence[str]
    command: str
    cause: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: its verdict, its name, where it is, and the other columns."""

    verdict: str
    name: str
    cells: Sequence[str]
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTable:
    """How often what was hit; 0 is shown as never, None is not due."""

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[int | None]]
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that the page shows. `columns` are those of `rows`, the first two being verdict and
    run."""

    verdict: str
    title: str
    about: str
    lines: Sequence[str]
    failures: Sequence[Failure]
    columns: Sequence[str]
    rows: Sequence[Row]
    tables: Sequence[CountTable] = ()


def text(page: Page) -> str:
    """The file's text."""
    return template("suite.html").render(page=page, style=Markup(stylesheet()))
