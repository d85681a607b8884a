"""Wrong logs of Kafka's own topics: random changes of a small world (`tests.oracles.changes`)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from linkflap.harness.log.coordinators import GROUPS, GroupCommit, GroupMembers
from tests.oracles.worlds import World


def change_own(made: World) -> bool:
    """Removes or changes something in Kafka's own topics."""
    random = made.random
    if not made.own:
        return False
    chosen = random.choice(sorted(made.own))
    log = made.own[chosen]
    n = random.randrange(len(log))
    what = random.choice(
        [
            "lose",
            "crc",
            "epoch",
            "twice",
            "truncate",
            "other",
            "other",
            "other",
            "start",
            "second",
            "second",
        ]
    )
    if what in ("lose", "truncate"):
        made.highs.setdefault(chosen, log[-1]["base"] + 1)
        del log[n : len(log) if what == "truncate" else n + 1]
        if not log:
            del made.own[chosen]
    elif what == "crc":
        log[n]["crc_ok"] = False
    elif what == "epoch":
        log[n]["epoch"] += 1
    elif what == "twice":
        log.insert(n, dict(log[n]))
    elif what == "start":
        del log[:n]
    elif what == "second":
        other = made.own_others[chosen] = deepcopy(log)
        if random.random() < 0.5:
            other[n]["crc"] += 1
        else:
            del other[n]
    else:
        log[n]["entry"] = _otherwise(made, log[n]["entry"])
    return True


def change_synced(made: World) -> bool:
    """A mirror commits another offset for a group, or commits again."""
    random = made.random
    logs = [
        log
        for (cluster, topic), log in sorted(made.own.items())
        if topic == GROUPS and cluster != "A"
    ]
    rows = [
        (log, n)
        for log in logs
        for n, row in enumerate(log)
        if isinstance(row["entry"], GroupCommit)
    ]
    if not rows:
        return False
    log, n = random.choice(rows)
    entry = log[n]["entry"]
    log[n]["entry"] = replace(
        entry, committed=max(0, entry.committed + random.choice([-2, -1, 1, 2, 5, 40]))
    )
    return True


def _otherwise(made: World, entry: Any) -> Any:
    if isinstance(entry, GroupCommit):
        return replace(entry, committed=max(0, entry.committed + made.random.choice([1, -1, 3])))
    if isinstance(entry, GroupMembers):
        return replace(entry, present=not entry.present)
    rng = made.random
    changes: list[dict[str, Any]] = [
        {"state": rng.choice([-1, 0, 1, 2, 3, 4, 5, 6])},
        {"state": rng.choice([0, 1, 2, 3, 4, 5])},
        {"producer_id": entry.producer_id + 1},
        {"producer_epoch": entry.producer_epoch + rng.choice([1, 2, 32766])},
        {"partitions": entry.partitions[1:]},
        {"timeout": entry.timeout * 15},
        {"started": entry.started + rng.choice([-100_000, 1])},
        {"updated": entry.updated + rng.choice([-100_000, 1])},
        {"version": 2},
        {"version": 2, "producer_epoch": entry.producer_epoch + 1},
        {"next_id": entry.producer_id + 1},
        {"previous_id": entry.producer_id + 1},
        {"transactional_id": "t1"},
    ]
    return replace(entry, **rng.choice(changes))
