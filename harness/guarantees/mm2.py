"""The guarantee of MirrorMaker 2, by its options (KIP-382, KIP-545, KIP-618; Kafka documentation,
Geo-Replication)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from linkflap.harness.guarantees.allowed import group_replay, over_a_failover, torn_by_failover
from linkflap.harness.model.guarantee import Allowance, Guarantee
from linkflap.harness.model.scenario import Option

REPLAY_REACH: Final = 10.0
"""Seconds before a fault whose records may be mirrored again: offset.flush.interval.ms (1 s here)
and offset.flush.timeout.ms (5 s) between two commits of source offsets, and the spacing of the
samples that date a record."""
SHARED_REPLAY_REACH: Final = 75.0
"""As REPLAY_REACH, on a Connect cluster that others run: offset.flush.interval.ms is 60 s by
default."""
RESTART_REACH: Final = 30.0
"""Seconds after a fault within which duplicates are written: restart of the worker, rebalance,
catching up."""
REPEATS: Final = Allowance(
    kind="mirrored-duplicate",
    rule="once-per-fault",
    cluster="the destination of the link that the fault touched",
    era="what that link mirrored",
    window=(
        "faults on the link, on the mirror, or on a broker of either end, or partitions added "
        "there, for which it restarts its tasks; until 30 s after the heal"
    ),
    bound=(
        "one copy per such fault, of records first mirrored no earlier than 10 s before it, and "
        "from there on all of them up to the last one; after faults on brokers of the destination "
        "also some alone, from a request that was answered late"
    ),
    citation=(
        "KIP-618, Motivation: source connectors other than exactly-once ones may write records "
        "again after a failure; Kafka documentation, Geo-Replication: at-least-once unless "
        "exactly.once.source.support is enabled"
    ),
    because="at-least-once: mirrored again around",
    reach_before=REPLAY_REACH,
    reach_after=RESTART_REACH,
)
CHECKPOINT_CONNECTOR: Final = "MirrorCheckpointConnector"
OFFSET_LAG_MAX: Final = 100
"""The default of offset.lag.max: records between two offset syncs."""
OFFSET_LAG: Final = "offset.lag.max"
INTERVALS: Final = (
    "refresh.groups.interval.seconds",
    "emit.checkpoints.interval.seconds",
    "sync.group.offsets.interval.seconds",
)
"""The steps in which a committed offset reaches the destination."""
_CHECKPOINTS: Final = (
    "KIP-545: checkpoints translate a group's offset, in no transaction with its outputs; KIP-382"
)


def _allowed(seconds: float, records: int) -> tuple[Allowance, ...]:
    return (
        group_replay(
            "KIP-545; KAFKA-12468: translated offsets may be earlier than the committed one, never "
            "later",
            recent=(
                f"the records committed in the last {seconds:g} s, plus offset.lag.max "
                f"({records}), plus the group's lag"
            ),
        ),
        torn_by_failover(
            "KIP-382: MirrorMaker 2 copies every partition independently and asynchronously"
        ),
        *over_a_failover(_CHECKPOINTS),
    )


ALLOWED: Final = _allowed(5.0, OFFSET_LAG_MAX)
"""With the settings that linkflap gives."""


def _repeats(options: Mapping[str, Option]) -> Allowance:
    if not options.get("connect"):
        return REPEATS
    bound = REPEATS.bound.replace(f"{REPLAY_REACH:g} s", f"{SHARED_REPLAY_REACH:g} s")
    return replace(REPEATS, bound=bound, reach_before=SHARED_REPLAY_REACH)


def guarantee(options: Mapping[str, Option]) -> Guarantee:
    """The guarantee of one worker; missing options have their defaults
    (`harness.mirrors.mm2_config`)."""
    exactly_once = options.get("delivery") == "exactly-once"
    seconds = 2 + sum(float(options.get(name, 1)) for name in INTERVALS)
    records = int(options.get(OFFSET_LAG, OFFSET_LAG_MAX))
    allowed = _allowed(seconds, records)
    return Guarantee(
        equality="order",
        offsets_kept=False,
        producer_ids="replaced",
        delivery="exactly-once" if exactly_once else "at-least-once",
        isolation=(
            "read_uncommitted"
            if options.get("isolation") == "read_uncommitted"
            else "read_committed"
        ),
        group_offsets="translated" if options.get("groups", ".*") else "none",
        group_offset_records=records,
        group_offset_seconds=seconds,
        group_offsets_by=CHECKPOINT_CONNECTOR,
        allowed=allowed if exactly_once else (_repeats(options), *allowed),
    )
