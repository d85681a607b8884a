"""The batches that the common clients write (`tests/data/logs/clients`) are sound, and are read
as sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.log import batches, records, reference
from linkflap.harness.log.codecs import NAMES
from linkflap.harness.model.verdict import Verdict
from tests.copied_logs import asked, judged
from tests.unit.test_forensics import found, look

CLIENTS = Path(__file__).parents[1] / "data" / "logs" / "clients"
PARTITIONS = sorted(path.name for path in CLIENTS.iterdir() if path.is_dir())
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WITHOUT_ZSTD = ("kafkajs", "sarama-1.19")


def sent(partition: str, codec: str) -> list[tuple[bytes | None, bytes | None, list[object]]]:
    headers = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    if partition.startswith("kafkajs"):
        headers = [headers[0], headers[2], headers[1]]
    named: list[object] = [(name.encode(), value) for name, value in headers]
    return [(b"k", f"{codec} ".encode() * 40, named), (None, b"", []), (b"", None, [])]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_clients_records_are_read_as_sent(partition: str) -> None:
    (path,) = (CLIENTS / partition).glob("*.log")
    data = [batch for batch in reference.batches(path.read_bytes()) if not batch.is_control]
    codecs = CODECS[:4] if partition.startswith(WITHOUT_ZSTD) else CODECS
    assert [NAMES[batch.codec] for batch in data] == list(codecs)
    for batch, codec in zip(data, codecs, strict=True):
        read = [(r.key, r.value, list(r.headers)) for r in reference.records(batch)]
        assert read == sent(partition, codec)
    log = batches.scan([path])
    columns, damage = records.decode(log)
    assert (list(log.damage), damage, len(columns)) == ([], [], 3 * len(codecs))


def test_a_clients_batches_are_those_of_a_healthy_cluster(tmp_path: Path) -> None:
    assert len(PARTITIONS) == 20
    result = judged(tmp_path / "judged", asked({"A": CLIENTS}))
    assert result.verdict is Verdict.VALID
    document = look(CLIENTS, code=0)
    assert found(document) == []
