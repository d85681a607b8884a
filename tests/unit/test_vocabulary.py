"""Private words stay out of names, files and texts: words whose meaning a Kafka engineer would
have to look up. docs/design.md has the words to use. Exceptions are in
vocabulary_exceptions.txt, by file or folder: each has to be needed, so that the list only
shrinks."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from linkflap.spark_verify.checks import REGISTRY

# The folders of the repository that have Python files, for tests that read all of them.


ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = (
    "linkflap",
    "harness",
    "chaos",
    "topologies",
    "spark_verify",
    "benchmarks",
    "docs",
    "tests",
)


TEXT = {
    "told": r"told",
    "mend": r"mend(?:s|ed|ing)?",
    "life": r"life",
    "crossing": r"crossings?",
    "stretch": r"stretch(?:es)?",
    "clue": r"clues?",
}
"""Banned wherever a person reads: names, comments, docstrings, messages, documents."""
NAMES = TEXT | {
    "place": r"places?",
    "cut": r"cuts?",
    "wish": r"wish(?:es)?",
    "dice": r"dice",
    "everyday": r"everyday",
}
"""Banned in names: they had several meanings, or their file explained them (ScenarioRequest, rng
and default_workloads are clear without it). In a sentence they are plain English."""
LOGS = (
    "spark_verify/",
    "harness/mirrors/",
    "harness/log/",
    "harness/rundir/",
    "tests/oracles/",
    "tests/faithful/",
)
"""Folders that deal with logs and not with links: there a log is truncated, and never cut, also in
a sentence."""
KEPT = re.compile(r"link_cut|linkcut", re.IGNORECASE)  # the fault


MAYBE = re.compile("|".join(NAMES.values()), re.IGNORECASE)


def parts(name: str) -> list[str]:
    """The words of an identifier, a file's name or a text, in lower case."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", KEPT.sub("", name)).lower())


def found(text: str, banned: dict[str, str]) -> set[str]:
    if not MAYBE.search(text):
        return set()
    words = set(parts(text))
    return {
        name
        for name, pattern in banned.items()
        if any(re.fullmatch(pattern, word) for word in words)
    }


def in_python(text: str) -> set[str]:
    """The banned words of a module, in its names and in its texts."""
    seen: set[str] = set()
    if not found(text, NAMES):
        return seen
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            seen |= found(token.string, NAMES)
        else:
            seen |= found(token.string, TEXT)
    return seen


def used() -> dict[str, frozenset[str]]:
    """By file, the banned words in it."""
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("*.py"),
        *ROOT.glob("linkflap/*.py"),
        *(path for top in FOLDERS for path in (ROOT / top).rglob("*.*")),
    ]
    names = sorted(str(path.relative_to(ROOT)) for path in files if path.suffix in (".py", ".md"))
    return {name: words for name in names if (words := frozenset(in_file(name)))}


def in_file(name: str) -> Iterator[str]:
    path = ROOT / name
    if path == Path(__file__).resolve():
        return
    yield from found(path.stem, NAMES)
    text = path.read_text()
    yield from in_python(text) if path.suffix == ".py" else found(text, TEXT)
    if name.startswith(LOGS):
        yield from found(text, {"cut": NAMES["cut"]})


def exceptions() -> dict[str, frozenset[str]]:
    """By file or folder (with a slash at its end), the words that it may have."""
    lines = (ROOT / "tests/unit/vocabulary_exceptions.txt").read_text().splitlines()
    rows = (line.partition("#")[0].split() for line in lines)
    return {row[0].removesuffix(":"): frozenset(row[1:]) for row in rows if row}


def covers(exception: str, name: str) -> bool:
    return name == exception or (exception.endswith("/") and name.startswith(exception))


def test_the_exceptions_are_all_private_words_that_there_are() -> None:
    allowed, words_by_file = exceptions(), used()
    left = {
        name: sorted(
            words
            - {word for where, some in allowed.items() if covers(where, name) for word in some}
        )
        for name, words in words_by_file.items()
    }
    assert {name: words for name, words in left.items() if words} == {}, (
        "docs/design.md has the words to use"
    )
    idle = {
        (where, word)
        for where, words in allowed.items()
        for word in words
        if not any(word in those for name, those in words_by_file.items() if covers(where, name))
    }
    assert idle == set(), "remove them from tests/unit/vocabulary_exceptions.txt"


def test_no_kind_of_anomaly_has_a_private_word() -> None:
    kinds = {kind.name for check in REGISTRY.values() for kind in check.anomalies} | set(REGISTRY)
    assert len(kinds) > 100
    assert {kind: words for kind in kinds if (words := found(kind, NAMES))} == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def told(): ...", {"told"}),
        ("self._was_told = 1", {"told"}),
        ("class StretchOfLife: ...", {"stretch", "life"}),
        ("x = 1  # mended", {"mend"}),
        ('"""At one place, cut at an offset."""', set()),
        ("by_place = {}", {"place"}),
        ("link_cut = 'link-cut'", set()),
        ("x.cut(1)", {"cut"}),
        ("text.replace('a', 'b')", set()),
    ],
)
def test_words_in_python_source_are_found(text: str, words: set[str]) -> None:
    assert in_python(text + "\n") == words
