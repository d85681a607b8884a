"""The report of a recorded run of a million records, valid and invalid, has 3 MB at most. Judged
without Spark and brokers."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from linkflap.judging.page import about
from linkflap.report import html
from tests.copied_logs import judged_again
from tests.run_copy import seal

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
RECORDS, GROUP = 1_000_000, 10
MOST_BYTES = 3_000_000
LOST = range(40_000, 40_003)
"""Transactions that B lacks in the invalid run."""

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCHMARKS))
        made: Path = import_module("recorded").write(
            tmp_path_factory.mktemp("million") / "run", RECORDS, GROUP
        )
    return made


def test_the_report_of_a_million_records_has_three_megabytes_at_most(
    valid: Path, tmp_path: Path
) -> None:
    invalid = shutil.copytree(valid, tmp_path / "invalid")
    (log,) = invalid.glob("captures/*/B/1/A.orders-0/*.log")
    size, rest = divmod(log.stat().st_size, RECORDS // GROUP)
    assert rest == 0, "each transaction has the same number of bytes"
    data = log.read_bytes()
    log.write_bytes(data[: LOST.start * size] + data[LOST.stop * size :])
    del data
    seal(invalid, digests=True)
    for folder, verdict in ((valid, "valid"), (invalid, "invalid")):
        judgement = judged_again(folder)
        assert judgement.document["verdict"] == verdict, judgement.document["reason"]
        (folder / "verdict.json").write_bytes(msgspec.json.encode(judgement.document))
        left_out: list[str] = []
        page = html.write(folder, judgement.document, about(judgement, left_out))
        assert left_out == []
        assert page.stat().st_size <= MOST_BYTES
        if verdict == "invalid":
            assert f"A.orders-0 @ {LOST.start * (GROUP + 1)}" in str(judgement.document["cause"])
