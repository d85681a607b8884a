"""A verdict document of the recorded run."""

from __future__ import annotations

from pathlib import Path

from tests.unit.recorded_run import TOPIC


def document(folder: Path, verdict: str = "valid") -> dict[str, object]:
    """A verdict document of that run; for invalid and unknown it has the check with the reason."""
    checks: list[dict[str, object]] = [
        {"name": "order-equality", "verdict": "valid",
        "examined": {"A/native": 1830, "B/mirrored": 1790}, "anomalies": 0,
         "allowed": 12, "reason": ""},
        {"name": "lost-write", "verdict": "valid",
        "examined": {"A/native": 1830, "B/native": 1011, "B/mirrored": 1790},
         "anomalies": 0, "allowed": 0, "reason": ""},
        {"name": "pid-uniqueness", "verdict": "valid",
        "examined": {"A/native": 130, "B/native": 66}, "anomalies": 0,
         "allowed": 0, "reason": ""},
    ]  # fmt: skip
    anomalies: list[dict[str, object]] = [
        {"check": "order-equality", "kind": "duplicate", "cluster": "B", "topic": TOPIC,
        "partition": 0, "offset": 640 + n,
         "allowed": True, "evidence": {"uid": 1099511628416 + n, "first_offset": 600 + n,
                                       "why": "at-least-once delivery repeats what was not "
                                              "committed when the link was cut"}}
        for n in range(12)
    ]  # fmt: skip
    if verdict != "valid":
        checks[1] |= {
            "verdict": verdict,
            "reason": "2 acknowledged records are nowhere" if verdict == "invalid" else "no reads",
        }
    if verdict == "invalid":
        checks[1]["anomalies"] = 2
        anomalies[:0] = [
            {"check": "lost-write", "kind": "lost-write", "cluster": "B", "topic": TOPIC,
            "partition": 0, "offset": offset,
             "allowed": False,
             "evidence": {"uid": 1099511628417, "acknowledged_on": "A", "transaction": "ok",
                                            "seen_by": ["reader-1", "<script>alert(1)</script>"]}}
            for offset in (1201, -1)
        ]  # fmt: skip
    return {
        "verdict": verdict,
        "run": str(folder),
        "seed": 4711,
        "scenario": "link-flap",
        "runtime": "process",
        "mirror": "mm2",
        "checks": checks,
        "failovers": [
            {
                "link": "A->B",
                "kind": "forced",
                "promoted": 2,
                "rpo_records": 17,
                "rto_seconds": 1.43,
            }
        ],
        "anomalies": anomalies,
    }
