"""What a story is about: a function of its seed, except for options that the caller sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from linkflap.harness.model.scenario import Option
from tests.faithful.endings import TRUNCATING_RULES

TOPIC: Final = "A.orders"


OUTPUTS: Final = "A.relayed"


GROUP: Final = "followers"


SHAPES: Final = ("pair", "failover", "round-trip", "chain", "copied")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a story is about; all of it a function of the seed, but for what a caller insists on
    (`spec`).

    `version` is that of transactions. `begun`: offsets before the log start, and with it sequences
    that wrap. `deleted`: the beginnings were deleted in the end. `flap`: the link is broken for a
    while. `lag`: the last that was acknowledged before a forced failover was not mirrored; `tear`:
    a transaction was committed then of which one partition was mirrored and another was not;
    `open_at_death`: one was open, of which something was mirrored; `open_at_end`: one is when the
    run ends. `relay`: there is one, which before a forced failover passes on what is not mirrored
    (`relay_torn`), or begins on the destination anew (`relay_anew`). `behind`: followers may lack
    the last batch. `overlap`: where the mirror truncates what is open, truncating a transaction
    opens another. `moves`: readers are killed and come back, and partitions move between members of
    their group. `deaths`: producers and relays are killed with work in flight, and come back.
    `outlives`: two producers of A are there before and after a failback, and what the first did
    last was truncated where the mirror resets producer states. `late_commit`: what was
    `open_at_death` A committed as it died. `program`: the relay is a program of the user's, which
    writes no history. `shares`: a share group reads what is there in the end.
    """

    seed: int
    shape: str
    mirror: str
    options: Mapping[str, Option]
    forced: bool
    version: int
    partitions: int
    brokers: int
    codecs: tuple[str, ...]
    append_time: bool
    begun: int
    deleted: bool
    flap: bool
    elections: bool
    lag: bool
    relay: bool
    behind: bool
    open_at_end: bool
    steps: int = 40
    open_at_death: bool = False
    tear: bool = False
    relay_torn: bool = False
    relay_anew: bool = False
    overlap: bool = False
    moves: bool = False
    deaths: bool = False
    outlives: bool = False
    late_commit: bool = False
    program: bool = False
    shares: bool = False


def spec(seed: int, **wanted: object) -> Spec:
    """The story of a seed, with the caller's options."""
    rng, ends = Random(seed), Random(f"end {seed}")
    shape = str(wanted.pop("shape", "") or rng.choice(SHAPES))
    mirror = str(
        wanted.pop("mirror", "")
        or ("shadow" if shape in ("round-trip", "copied") else rng.choice(("shadow", "mm2")))
    )
    drawn = Spec(
        seed=seed,
        shape=shape,
        mirror=mirror,
        options=_options(mirror, rng, ends),
        forced=rng.random() < 0.6,
        version=rng.choice((1, 2)),
        partitions=rng.choice((1, 2, 2, 3)),
        brokers=rng.choice((1, 1, 2, 3)),
        codecs=rng.choice(
            (("none",), ("none", "gzip"), ("snappy", "lz4"), ("zstd", "xerial", "none"))
        ),
        append_time=rng.random() < 0.3,
        begun=rng.choice((0, 0, 17)),
        deleted=rng.random() < 0.15,
        flap=rng.random() < 0.5,
        elections=rng.random() < 0.5,
        lag=rng.random() < 0.5,
        relay=rng.random() < 0.4,
        behind=rng.random() < 0.5,
        open_at_end=rng.random() < 0.2,
        moves=Random(f"moves {seed}").random() < 0.6,
        deaths=Random(f"deaths {seed}").random() < 0.5,
        shares=Random(f"shares {seed}").random() < 0.4,
    )
    drawn_spec = replace(drawn, **wanted)  # type: ignore[arg-type]
    drawn_spec = _ended(drawn_spec, Random(f"sessions {seed}"), wanted)
    # truncate-once is correct only if it opens no other transaction.
    stable = drawn_spec.options.get("open_transactions") == "truncate-stable"
    return (
        drawn_spec
        if "overlap" in wanted
        else replace(drawn_spec, overlap=stable and ends.random() < 0.6)
    )


def _ended(drawn_spec: Spec, rng: Random, wanted: Mapping[str, object]) -> Spec:
    """What happens to sessions and open transactions when clusters are given up and taken back."""
    outlives, dying, late = (rng.random() < chance for chance in (0.6, 0.4, 0.5))
    drawn = {
        "outlives": outlives and drawn_spec.shape == "round-trip",
        "open_at_death": dying and drawn_spec.forced,
    }
    drawn["late_commit"] = late and bool(wanted.get("open_at_death", drawn["open_at_death"]))
    added = {name: value for name, value in drawn.items() if name not in wanted}
    return replace(drawn_spec, **added)  # type: ignore[arg-type]


def _options(mirror: str, rng: Random, ends: Random) -> Mapping[str, Option]:
    if mirror == "mm2":
        return {"delivery": rng.choice(("at-least-once", "exactly-once"))}
    ids = rng.choice(("jump", "jump", "reset", "complement"))
    return {
        "producer_ids": ids,
        "bound": rng.choice(("hw", "hw", "lso")),
        "leader_epochs": rng.choice(("rewrite", "rewrite", "keep")),
        # Markers after a reset would have ids that the destination assigns again.
        "open_transactions": ends.choice(
            ("abort", "abort" if ids == "reset" else "write-txn-markers", *sorted(TRUNCATING_RULES))
        ),
    }
