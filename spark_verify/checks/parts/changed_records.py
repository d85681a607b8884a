"""Which records of one batch differ between two logs, and in what: of batches that were looked into
(`differing_batches`)."""

from __future__ import annotations

from typing import Any, Final

from linkflap.spark_verify.facts.view import Parts

FIELDS: Final = ("timestamp", "key", "value", "headers")
ABSENT: Final = ["absent on one"]


def changed_records(ours: Parts, theirs: Parts, base: int, last: int) -> list[dict[str, Any]]:
    """The records of a batch that differ: offset, uid, and which of their parts do, or on which
    side one is not there."""
    one, two = _by_offset(ours, base, last), _by_offset(theirs, base, last)
    found: list[dict[str, Any]] = []
    if not one or not two:
        return found
    for offset in sorted(one.keys() | two.keys()):
        mine, yours = one.get(offset), two.get(offset)
        if mine is None or yours is None:
            uid = int(
                (ours if mine is not None else theirs).uid[mine if mine is not None else yours]
            )
            found.append({"offset": offset, "uid": uid, "fields": ABSENT})
            continue
        fields = [
            name for name in FIELDS if getattr(ours, name)[mine] != getattr(theirs, name)[yours]
        ]
        if fields:
            found.append({"offset": offset, "uid": int(ours.uid[mine]), "fields": fields})
    return found


def _by_offset(parts: Parts, base: int, last: int) -> dict[int, int]:
    return {
        offset: row for row, offset in enumerate(parts.offset.tolist()) if base <= offset <= last
    }
