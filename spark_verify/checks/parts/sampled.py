"""Committed offsets of groups as somebody sampled them: whether anybody did, where a group had committed any.

The sampler (`harness.capture.watermarks`) asks for bounds all the time and for the offsets of groups now and then, in one thread.
So a group that had committed offsets of a partition while bounds were sampled for a while after that, and of which no offset was
ever sampled, is a group that nobody asked for, or could not.
"""

from __future__ import annotations

from typing import Final

from linkflap.spark_verify.facts.view import PartitionView

ASKED_WITHIN: Final = 3_000_000_000
"""Nanoseconds of sampling within which groups are asked for: every half a second, and each time it may take 2 s to fail."""


def never_sampled(view: PartitionView, cluster: str, group: str, *, until: int) -> str:
    """Why nothing can be said of how far a group was on a cluster before some time; empty where it was sampled, or never due."""
    if any(g.group == group and g.cluster == cluster for g in view.groups):
        return ""
    mine = [r for r in view.reads if r.group == group and r.cluster == cluster and r.kind == "commit" and r.returned < until]
    marks = view.watermarks.get(cluster)
    if not mine or marks is None:
        return ""
    first = min(r.returned for r in mine)
    if not ((marks.time >= first + ASKED_WITHIN) & (marks.returned < until)).any():
        return ""
    return f"no committed offset of group {group} was ever sampled on {cluster}, so how far it was there is unknown"
