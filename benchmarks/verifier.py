"""The speed of the verifier, compared with the obvious plan (a join) and with a single thread that
reads the files and computes CRCs; and its memory at two sizes.

The inputs are logs of two clusters (`mirrored_logs`), where B is an offset-exact mirror of A. It
measures `linkflap verify --logs` from two log directories to the verdict, with Spark warm. There
are two baselines in the same run. One is Spark's full outer join on topic, partition and offset
over decoded records (`plain_join`), in the same session. The other is a single thread that reads
the same files and recomputes every CRC, with the same niceness as Spark. Each variant runs once
before it is measured, rounds are interleaved, and medians compared; files are in the page cache.

    python benchmarks/verifier.py [--small 5] [--large 20] [--rounds 3] [--folder DIR]
        sizes in million records per side

Targets: 14 times faster than the join on equal logs, and 5 times if one range differs. Between the
two sizes, at most 1.5 times the wall time per million records of the single thread. At the large
size, at most a tenth more memory than at the small one (proportional set size of the driver,
Spark's JVM and its Python workers, sampled).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import mirrored_logs
import plain_join
from crc32c import crc32c
from measuring import Memory

from linkflap.harness.capture.folders import record
from linkflap.harness.capture.logs_request import LogsRequest
from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.spark import session
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify

HEALTHY_TARGET, DIVERGENT_TARGET, SLOPE_TARGET, MEMORY_TARGET = 14.0, 5.0, 1.5, 1.1
NICE = 5
CHUNK = 8 << 20


def judged(one: Path, other: Path) -> Judgement:
    """The verdict on two log directories, in a separate run directory."""
    with tempfile.TemporaryDirectory(prefix="linkflap-benchmark-") as folder:
        run = Path(folder) / "run"
        links = [LinkSpec(source="A", destination="B")]
        record(
            run, LogsRequest(logs={"A": one, "B": other}, links=links, promotions={}), "benchmark"
        )
        return verify([run])[0]


def ours(one: Path, other: Path) -> list[int]:
    """First offsets of the batches that differ according to the verifier."""
    judgement = judged(one, other)
    assert judgement.verdict.value == ("invalid" if judgement.anomalies else "valid"), (
        judgement.document["reason"]
    )
    return sorted(a.offset for a in judgement.anomalies if a.kind == "byte-divergence")


def joined(one: Path, other: Path) -> list[int]:
    """Offsets of the records that differ according to the join."""
    spark = session.session()
    for name, value in {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "16",
    }.items():
        spark.conf.set(name, value)
    spark.dataSource.register(plain_join.RecordSource)
    found = (
        plain_join.differing(spark, one, other)
        .selectExpr("coalesce(l.offset, r.offset) as offset")
        .toArrow()
    )
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    return sorted(found["offset"].to_pylist())


def summed(*folders: Path) -> int:
    """The number of batches with a correct CRC: one thread reads every byte once into one
    buffer."""
    good = 0
    buffer = bytearray(CHUNK)
    for path in (p for folder in folders for p in sorted(folder.glob("*/*.log"))):
        with path.open("rb", buffering=0) as file:
            held = 0
            while (more := file.readinto(memoryview(buffer)[held:])) or held:
                end, begin = held + more, 0
                view = memoryview(buffer)
                while end - begin >= 61:
                    (length,) = struct.unpack_from(">i", buffer, begin + 8)
                    if begin + 12 + length > end:
                        break
                    (crc,) = struct.unpack_from(">I", buffer, begin + 17)
                    good += crc == crc32c(view[begin + 21 : begin + 12 + length])
                    begin += 12 + length
                held = end - begin
                buffer[:held] = buffer[begin:end]
                if not more:
                    break
    return good


def timed(action: Callable[[], object]) -> float:
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def memory(one: Path, other: Path) -> Mapping[str, int]:
    """The peak memory of one verification from a cold start, in a child process."""
    with subprocess.Popen(
        [sys.executable, __file__, "--once", str(one), str(other)], stdin=subprocess.DEVNULL
    ) as child:
        watch = Memory(child.pid)
        watch.start()
        code = child.wait()
        peak = watch.stop()
    assert code == 0, f"the measured process ended with {code}"
    return peak


def compare(small: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each round, for equal logs and for logs that differ in one range."""
    took: dict[str, dict[str, list[float]]] = {}
    for case, other, differ in (("equal", "B", False), ("one range differs", "D", True)):
        one, two = small / "A", small / other
        assert bool(ours(one, two)) is bool(joined(one, two)) is differ
        took[case] = {"verifier": [], "join": []}
        for _ in range(rounds):
            took[case]["verifier"].append(timed(lambda one=one, two=two: ours(one, two)))  # type: ignore[misc]
            took[case]["join"].append(timed(lambda one=one, two=two: joined(one, two)))  # type: ignore[misc]
            print(
                f"  {case}: { ({n: round(t[-1], 2) for n, t in took[case].items()}) }", flush=True
            )
    return took


def slopes(sides: Mapping[float, Path], rounds: int) -> dict[str, float]:
    """Seconds per million records per side between the two sizes."""
    took: dict[str, dict[float, list[float]]] = {"verifier": {}, "one thread": {}}
    for millions, folder in sides.items():
        ours(folder / "A", folder / "B")
        del millions
    for _ in range(rounds):
        for millions, folder in sides.items():
            seconds = timed(partial(ours, folder / "A", folder / "B"))
            took["verifier"].setdefault(millions, []).append(seconds)
            took["one thread"].setdefault(millions, []).append(_alone(folder))
        print(
            f"  { ({n: {m: round(t[-1], 2) for m, t in by.items()} for n, by in took.items()}) }",
            flush=True,
        )
    less, more = sorted(sides)
    return {
        name: (statistics.median(by[more]) - statistics.median(by[less])) / (more - less)
        for name, by in took.items()
    }


def _alone(folder: Path) -> float:
    """Seconds of the single thread, in a process with the same niceness as Spark."""
    done = subprocess.run(
        [sys.executable, __file__, "--sum", str(folder / "A"), str(folder / "B")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


def make(folder: Path, millions: float, *, divergent: bool) -> Path:
    """Logs of `millions` million records per side: A, B, and D, which differs in one range."""
    into = folder / f"{millions:g}"
    records = int(millions * 1e6)
    for name in ("A", "B", *(("D",) if divergent else ())):
        if not (into / name).exists():
            range_ = mirrored_logs.Divergence(
                partition=2, first=records // 4 // mirrored_logs.RECORDS // 2
            )
            diverge = range_ if name == "D" else None
            mirrored_logs.write(
                into / name, records=records, side="A" if name == "A" else "B", diverge=diverge
            )
    return into


def report(
    took: Mapping[str, Mapping[str, list[float]]],
    slope: Mapping[str, float],
    peaks: Mapping[float, Mapping[str, int]],
) -> bool:
    met = True
    for case, target in (("equal", HEALTHY_TARGET), ("one range differs", DIVERGENT_TARGET)):
        medians = {name: statistics.median(times) for name, times in took[case].items()}
        ratio = medians["join"] / medians["verifier"]
        met &= ratio >= target
        print(
            f"{case}: verifier {medians['verifier']:.2f} s, join {medians['join']:.2f} s: "
            f"{ratio:.1f} times (target {target:g})"
        )
    ratio = slope["verifier"] / slope["one thread"]
    met &= ratio <= SLOPE_TARGET
    print(
        f"s per million records: verifier {slope['verifier']:.3f}, "
        f"one thread {slope['one thread']:.3f}: {ratio:.1f} times (target {SLOPE_TARGET:g})"
    )
    less, more = (peaks[size]["all"] for size in sorted(peaks))
    met &= more / less <= MEMORY_TARGET
    print(
        f"peak memory, MiB: {json.dumps(peaks)}: {more / less:.2f} times (target {MEMORY_TARGET:g})"
    )
    print("targets met" if met else "targets missed")
    return met


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=float, default=5)
    parser.add_argument("--large", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--once", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sum", nargs=2, type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.once:
        ours(*wanted.once)
        session.close()
        return 0
    if wanted.sum:
        os.nice(NICE)
        print(timed(lambda: summed(*wanted.sum)))
        return 0
    with tempfile.TemporaryDirectory(prefix="linkflap-benchmark-") as temporary:
        folder = wanted.folder or Path(temporary)
        sides = {
            size: make(folder, size, divergent=size == wanted.small)
            for size in (wanted.small, wanted.large)
        }
        print(
            f"{wanted.small:g} and {wanted.large:g} million records per side, {wanted.rounds} "
            f"rounds, load average {os.getloadavg()[0]:.0f}"
        )
        peaks = {size: memory(into / "A", into / "B") for size, into in sides.items()}
        session.session()
        took = compare(sides[wanted.small], wanted.rounds)
        slope = slopes(sides, wanted.rounds)
        session.close()
    return 0 if report(took, slope, peaks) else 1


if __name__ == "__main__":
    sys.exit(main())
