"""Reports of judged runs, invalid and valid ones, and the data that their pages hold."""

from __future__ import annotations

from pathlib import Path

import msgspec

from linkflap.judging.page import about
from linkflap.report import html
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import judged_again

INVALID = (
    "taken-for-a-repeat",
    "mirrored-batch-lost",
    "aborted-was-mirrored",
    "tail-not-truncated",
    "commit-became-abort",
)


VALID = {
    "chain": {"shape": "chain"},
    "round-trip": {"shape": "round-trip"},
    "failover": {"shape": "failover"},
}


def written(folder: Path) -> Judgement:
    judgement = judged_again(folder)
    (folder / "verdict.json").write_bytes(msgspec.json.encode(judgement.document))
    html.write(folder, judgement.document, about(judgement, []))
    return judgement


DATA = "JSON.parse(document.getElementById('data').textContent)"
