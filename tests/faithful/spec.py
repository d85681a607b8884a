"""The specification of a story: a function of its seed, except for options that the caller sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from linkflap.harness.model.scenario import Option
from tests.faithful.clusters import TRUNCATING_RULES

TOPIC: Final = "A.orders"


OUTPUTS: Final = "A.relayed"


GROUP: Final = "followers"


SHAPES: Final = ("pair", "failover", "round-trip", "chain", "copied")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The options of a story, all drawn from the seed unless the caller sets them (`spec`).

    - `version`: of transactions (KIP-890).
    - `begun`: offsets before the log start; if above 0, sequences wrap.
    - `deleted`: the beginnings of logs are deleted at the end.
    - `flap`: the link is down for a while.
    - `lag`: the last acknowledged records before a forced failover are not mirrored.
    - `tear`: one partition of a committed transaction is mirrored then, and another is not.
    - `open_at_death`: a transaction is open then, and partly mirrored; `late_commit`: A commits it
      while it dies.
    - `open_at_end`: a transaction is open at the end of the run.
    - `relay`: there is a relay. Before a forced failover, it processes inputs whose outputs are not
      mirrored (`relay_torn`), or it begins again on the destination (`relay_anew`).
    - `program`: the relay is a user's program, which writes no history.
    - `behind`: followers may lack the last batch.
    - `overlap`: if the mirror truncates open transactions, truncating one opens another.
    - `moves`: readers are killed and come back, and partitions move between members of their group.
    - `deaths`: producers and relays are killed with operations in flight, and come back.
    - `outlives`: two producers of A exist before and after a failback. If the mirror resets
      producer states, the last records of the first one are truncated.
    - `shares`: a share group reads the records at the end.
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
    """The fate of sessions and open transactions when clusters are given up and taken back."""
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
