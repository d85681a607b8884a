"""Wrong reports of mirrors about themselves: random changes of a small world
(`tests.oracles.changes`)."""

from __future__ import annotations

from random import Random

from tests.oracles.worlds import SECOND, World, random_row


def change_promotion(made: World) -> bool:
    if not made.promotions:
        return False
    row, random = random_row(made, made.promotions), made.random
    what = random.choice(["offset", "offset", "kind", "lose"])
    if what == "offset":
        row["offset"] = max(0, row["offset"] + random.choice([1, -1, 2, -2]))
    elif what == "kind":
        row["kind"] = random.choice(["planned", "forced"])
    else:
        made.promotions.remove(row)
    return True


def refuse_failover(made: World) -> bool:
    """A failover was refused at every request; possibly over a link that the run does not have."""
    link = made.random.choice(
        [
            "A->B",
            "B->A",
            *(f"{source}->{destination}" for source, destination in made.links),
            "A->C",
        ]
    )
    refused = {
        "link": link,
        "kind": made.random.choice(["planned", "forced"]),
        "error": "INVALID_MIRROR_STATE",
        "code": 145,
        "seconds": 60.0,
    }
    made.refusals.append(refused)
    return True


def change_journal(made: World) -> bool:
    if not made.stops:
        return False
    row, random = random_row(made, made.stops), made.random
    what = random.choice(
        ["mirrored", "promoted", "silent", "claims", "truncated", "unknown", "epochs"]
    )
    if what in ("mirrored", "promoted"):
        row[what] = max(0, row[what] + random.choice([1, -1]))
    elif what == "silent":
        row["appended"] = row["appended"][1:]
    elif what == "claims":
        row["appended"] = [
            *row["appended"],
            (row["mirrored"], random.choice(["ABORT of producer 1, epoch 0", "MIRROR_PID_RESET"])),
        ]
    elif what == "truncated":
        row["truncated"] = [
            *row["truncated"],
            (row["mirrored"], max(0, row["mirrored"] - random.choice([0, 1, 2]))),
        ]
    elif what == "epochs":
        row["epochs"] = [
            (epoch + random.choice([0, 1]), start + random.choice([0, 0, 1]))
            for epoch, start in row["epochs"]
        ]
    else:
        row["promoted"] = -1
    return True


def change_truncation(made: World) -> bool:
    if not made.truncations:
        return False
    row = random_row(made, made.truncations)
    if made.random.random() < 0.5:
        row["offset"] = max(0, row["offset"] - 1)
    else:
        made.truncations.remove(row)
    return True


def lie(made: World) -> bool:
    """A mirror reports something false about itself. It uses its own random numbers, so that the
    rest of a seed's world stays the same."""
    rng = Random(made.time)
    if not made.descriptions or rng.random() < 0.5:
        return False
    for row in rng.sample(made.descriptions, min(len(made.descriptions), 4)):
        row |= {
            "mirrors": True,
            "state": "MIRRORING",
            "lag": rng.choice([-1, 0, 0, max(0, row["lag"] - 1)]),
        }
    return True


def forget(made: World) -> bool:
    """A mirror reports, for some time after a promotion, a state that is not promoted. Now and then
    it reports the promotion again, or gives no report. It uses its own random numbers, as `lie`
    does."""
    rng = Random(made.time + 3)
    if not made.promotions or rng.random() < 0.5:
        return False
    promotion = rng.choice(made.promotions)
    asked = promotion["time"] + rng.randint(1, 9) * SECOND
    for _ in range(rng.choice([9, 11, 15, 25])):
        asked += rng.choice([3, 3, 3, 3, 4, 4, 6]) * SECOND if rng.random() < 0.5 else 3 * SECOND
        known = rng.random() < 0.04
        made.descriptions.append(
            {
                "link": promotion["link"],
                "partition": promotion["partition"],
                "state": "STOPPED" if known else "UNKNOWN",
                "mirrors": False,
                "promoted": known,
                "lag": -1,
                "asked": asked,
                "returned": asked + 1000,
            }
        )
    return True


def shorten_replicas(made: World) -> bool:
    """Some samples of replicas have another end. It uses its own random numbers, as `lie` does."""
    rng = Random(made.time + 4)
    if not made.replica_samples or rng.random() < 0.5:
        return False
    for row in rng.sample(made.replica_samples, min(len(made.replica_samples), 3)):
        row["log_end"] = max(0, row["log_end"] + rng.choice([-3, -2, -1, 1]))
    return True


def disagree(made: World) -> bool:
    """A mirror answered a verb unlike its model, on one link or on both. It uses its own random
    numbers, as `lie` does."""
    rng = Random(made.time + 1)
    if not made.descriptions or rng.random() < 0.7:
        return False
    links = sorted({row["link"] for row in made.descriptions})
    for link in rng.sample(links, rng.randint(1, len(links))):
        made.disagreements.append(
            {"link": link, "said": "pause was accepted", "time": made.time, "partition": 0}
        )
    return True


def compare(made: World) -> bool:
    """Mirrors compared their topics with the source's, once or twice. It uses its own random
    numbers, as `lie` does."""
    rng = Random(made.time + 2)
    if not made.links or rng.random() < 0.7:
        return False
    links = [f"{source}->{destination}" for source, destination in made.links]
    for link in rng.sample(links, rng.randint(1, len(links))):
        for n in range(rng.randint(1, 2)):
            differing = tuple(
                rng.sample(
                    [("retention.ms", "1", None), ("segment.ms", "1", "2")],
                    rng.choice([0, 0, 1, 2]),
                )
            )
            row = {
                "link": link,
                "there": 2,
                "here": rng.choice([0, 1, 2, 2, 2]),
                "differing": differing,
                "time": made.time + n,
                "missing": rng.sample(["u may read"], rng.choice([0, 0, 1])),
                "recorded": rng.sample(["0: FAILED recorded"], rng.choice([0, 0, 1])),
                "beside": rng.sample(["v may read", "w may not"], rng.choice([0, 0, 0, 1, 2])),
            }
            made.comparisons.append({**row, "partition": 0})
    return True
