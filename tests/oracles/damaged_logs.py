"""Damaged logs: random damage of a disk to a replica in a small world (`tests.oracles.changes`)."""

from __future__ import annotations

from tests.oracles.views import count_of
from tests.oracles.worlds import DATA, RESET, Row, World


def tear(made: World) -> bool:
    """A replica ends in the middle of a batch; later batches are lost."""
    log = _damaged(made)
    if log is not None:
        del log[made.random.randint(0, len(log)) :]
    return log is not None


def lose_inside(made: World) -> bool:
    """A replica lacks some batches, and ends in the middle of a batch."""
    log = _damaged(made)
    if log:
        first = made.random.randrange(len(log))
        del log[first : first + made.random.randint(1, 2)]
    return log is not None


def corrupt(made: World) -> bool:
    """A batch of a replica is corrupt: its CRC is wrong, its records are not read, and its producer
    may be another. Other batches are read."""
    log = _damaged(made)
    whole = [b for b in log or () if b["crc_ok"]]
    if whole:
        batch, random = made.random.choice(whole), made.random
        batch |= {
            "crc_ok": False,
            "was": batch["control"],
            "rotten": batch["records"],
            "count": count_of(batch),
            "records": [],
        }
        # The kind of a marker is in its record, after the header.
        batch["control"] = DATA if batch["was"] == DATA else RESET
        batch["crc"] = random.choice([batch["crc"], batch["crc"] + 1])
        batch["pepoch"] += random.choice([0, 0, 1, -1])
        batch["pid"] = random.choice([batch["pid"], batch["pid"], 1, 2, 1001])
    return log is not None


def _damaged(made: World) -> list[Row] | None:
    """The log of a replica that gets the damage; None if there is none."""
    random = made.random
    broker, logs = random.choice([(1, made.logs), (1, made.logs), (2, made.others)])
    candidates = [(chosen, log) for chosen, log in logs.items() if log]
    if made.earlier and random.random() < 0.3:
        row = random.choice(made.earlier)
        row["torn"] = True
        found: list[Row] = row["log"]
        return found
    if not candidates:
        return None
    chosen, log = random.choice(candidates)
    made.torn.add((*chosen, broker))
    return log
