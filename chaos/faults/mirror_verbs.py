"""mirror-verbs: admins send a mirror random verbs, in states that allow them and in others, some of
them concurrently.

Breaks    replication of paused topics, and the mirror's state of them when it resumes (KIP-1279:
          pause, resume; create, start and delete of existing objects must be refused). None of
          these verbs promotes anything.
Bite      a verb was accepted and changed the mirror's state, by describe's answer before the next
          verb.
Heal      paused topics are resumed, and every topic is mirrored again.

Each answer, and the state that describe reaches after it, is compared with a model of the KIP. A
disagreement is an anomaly (check mirror-states), and ends the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from linkflap.chaos.faults.administered import link_reason, mirror_of
from linkflap.chaos.faults.settings import settings
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.protocols import Bite, PlayedVerbs, World
from linkflap.harness.model.scenario import FaultSpec, Option
from linkflap.harness.model.topology import Topology


class MirrorVerbs:
    """Sends a mirror random verbs that promote nothing; options steps and seed."""

    restores = True
    defaults: ClassVar[Mapping[str, Option]] = {"steps": 6, "seed": 1000}
    abouts: ClassVar[Mapping[str, str]] = {
        "steps": "how many steps; each is a verb, or two at the same time",
        "seed": "what the verbs are drawn by, with the fault's id",
    }

    def __init__(self, spec: FaultSpec, world: World) -> None:
        values = settings(spec, self.defaults)
        self._spec, self._mirror = spec, mirror_of(spec, world)
        self._steps, self._seed = max(1, int(values["steps"])), f"{spec.id} {values['seed']}"
        self._played: PlayedVerbs | None = None

    @classmethod
    def applies_to(cls, target: str, topology: Topology) -> str | None:
        return link_reason(target, topology)

    def inject(self) -> None:
        try:
            self._played = self._mirror.play_verbs(self._seed, self._steps)
        except DeadlineExceeded as error:
            raise FaultError(f"{error}; no verb was asked for") from error

    def bite(self) -> Bite:
        played = self._played
        seen: dict[str, int | str] = (
            {"asked": played.asked, "changed": played.changed}
            if played
            else {"asked": 0, "changed": 0}
        )
        if played and played.unanswered:
            seen = {**seen, "unanswered": played.unanswered}
        bit = played is not None and (played.changed > 0 or bool(played.wrong))
        return Bite(
            bit=bit,
            observable=f"verbs of the mirror of {self._spec.target}",
            measured=seen,
            expected="a verb that is accepted",
        )

    def heal(self) -> Sequence[str]:
        if self._played is None:
            return ["no verb was asked for"]
        try:
            topics = self._mirror.resume_all()
        except DeadlineExceeded as error:
            raise FaultError(str(error)) from error
        return [f"{len(topics)} topics are mirrored"]
