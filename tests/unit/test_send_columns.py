"""Sends as columns equal the sends that they were made from, whatever is selected."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest

from linkflap.spark_verify.facts.send_columns import ARRAYS, NUMBERS, WORDS, Sends, SendsBuilder
from linkflap.spark_verify.facts.sends_and_reads import Send
from tests.oracles.happenings import world
from tests.oracles.views import views
from tests.synthetic import same


def some(seed: int) -> list[Send]:
    """Every send of a small random history; those of a relay have inputs."""
    return [send for seen in views(world(Random(seed))) for send in seen.sends]


EVERY = [some(seed) for seed in range(6)]


def test_every_field_has_a_column() -> None:
    assert {f.name for f in fields(Send)} == {*NUMBERS, *WORDS, *ARRAYS}


@pytest.mark.parametrize("sends", EVERY)
def test_one_by_one_they_are_the_same(sends: list[Send]) -> None:
    columns = Sends.of(sends)
    assert len(columns) == len(sends)
    assert same(list(columns), sends)
    assert same(columns[-1], sends[-1])
    assert same(list(columns[1:4]), sends[1:4])
    assert Sends.of(columns) is columns


@pytest.mark.parametrize("sends", EVERY)
def test_a_selection_has_their_columns(sends: list[Send], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linkflap.spark_verify.facts.send_columns._AT_ONCE", 3)
    rows = np.array(Random(5).sample(range(len(sends)), len(sends) // 2))
    chosen = [sends[row] for row in rows]
    for taken in (Sends.of(sends).take(rows), Sends.of(sends).take(rows).packed()):
        assert same(list(taken), chosen)
        assert taken.column("invoked").tolist() == [s.invoked for s in chosen]
        assert taken.sizes.tolist() == [len(s.offsets) for s in chosen]
        assert taken.each("offsets").tolist() == [
            offset for s in chosen for offset in s.offsets.tolist()
        ]
        assert taken.each("input_uids").tolist() == [
            uid for s in chosen for uid in s.input_uids.tolist()
        ]
        assert taken.words("cluster") == {s.cluster for s in chosen}
        assert taken.says("ending", "commit", "none").tolist() == [
            s.ending in ("commit", "none") for s in chosen
        ]


def test_no_sends_make_empty_columns() -> None:
    nothing = Sends.of([])
    assert len(nothing) == 0
    assert not list(nothing)
    assert nothing.words("cluster") == set()
    assert nothing.each("refused").tolist() == []
    assert nothing.says("cluster", "A").tolist() == []
    assert len(SendsBuilder().sends()) == 0


def test_parts_are_put_in_order() -> None:
    sends = some(4)
    gathering = SendsBuilder()
    for part in (sends[3:][::-1], [replace(s, client="another") for s in sends[:3]]):
        columns = Sends.of(part)
        for name in NUMBERS:
            gathering.numbers(name, columns.column(name))
        for name in WORDS:
            codes, words = columns.codes(name)
            gathering.words(name, words, codes)
        for name in ARRAYS:
            gathering.arrays(name, columns.each(name), columns.sizes_of(name))
    wanted = [*(replace(s, client="another") for s in sends[:3]), *sends[3:]]
    assert same(
        list(gathering.sends()), sorted(wanted, key=lambda s: (s.invoked, s.number, s.first_uid))
    )
