"""Generated scenarios: every one can be played, the same seed gives the same one, coverage guides
the next; faults follow one another, overlap, or wait for a state of the logs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkflap.chaos import generator, scenario_file, schedule
from linkflap.chaos.faults import (
    FAULTS,
    IN_CONTAINERS,
    IN_PROCESSES,
    OF_CERTIFICATES,
    OF_PROGRAMS,
    ON_THE_WIRE,
)
from linkflap.chaos.faults.brokers import BrokerKill
from linkflap.chaos.generator import Coverage, GeneratorBounds, baseline, cells_of, generate
from linkflap.chaos.generator.bounds import ALL, LOSSY, PRIVILEGED, of_scenario
from linkflap.chaos.generator.coverage import position
from linkflap.chaos.generator.packages import FAILOVERS, Draft, Wants
from linkflap.chaos.triggers import Condition, condition
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.faults import OF_BROKERS_MIRRORS
from linkflap.harness.model.scenario import NO_MIRROR, FaultSpec, Scenario, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, ServiceSpec, Topology
from linkflap.recording.run import check
from linkflap.topologies import parse
from tests.scenarios import drawn, scenario_of

# Bounds for the scenarios that tests generate.


EVERY = GeneratorBounds(topologies=ALL, mirrors=("shadow", "mm2"))


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=30)
@given(seed=seeds, number=st.integers(1, 10_000))
def test_every_generated_scenario_can_be_played_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, seed: int, number: int
) -> None:
    made = generate(seed, number, Coverage(), EVERY, guided=False)
    check(made, "process")
    path = tmp_path_factory.mktemp("made") / "made.toml"
    path.write_text(scenario_file.render(made))
    read = scenario_file.read(path, seed=0)
    assert scenario_file.render(read) == scenario_file.render(made)
    assert read.schedule == made.schedule


@settings(max_examples=20)
@given(seed=seeds, topology=st.sampled_from(["A", "A:3"]))
def test_one_cluster_has_faults_of_its_brokers_and_clients_and_no_mirror(
    seed: int, topology: str
) -> None:
    bounds = GeneratorBounds(topologies=(topology,))
    made = generate(seed, 1, Coverage(), bounds, guided=False)
    check(made, "process")
    assert made.mirror == NO_MIRROR
    assert {fault.on.entered for fault in made.schedule} == {"A"}
    assert not any(fault.on.link or fault.name.fails_over for fault in made.schedule)
    links = [fault for fault in made.schedule if fault.name.of_link]
    assert {fault.target for fault in links} <= {"*->A"}
    first, *through = [w.options.get("via") for w in made.workloads]
    assert through == ["proxy"] * len(through), "a fault of their path would bite nobody"
    assert first in ("proxy", "wire")
    assert scenario_file.render(made).count("[mirror]") == 0
    assert f"on/none/{topology}" in cells_of(made)


def test_what_one_cluster_can_suffer_is_drawn() -> None:
    seen, coverage, bounds = set(), Coverage(), GeneratorBounds(topologies=("A", "A:3"))
    bounds.check()
    assert bounds.kinds == ("none",)
    for number in range(1, 31):
        made = generate(7, number, coverage, bounds)
        coverage = coverage.with_run(cells_of(made))
        seen |= {fault.fault for fault in made.schedule}
        waits = [name for fault in made.schedule for name, _ in condition(fault.when).triggers]
        seen |= {*waits}
    assert seen >= {"link-flap", "link-half-open", "broker-kill", "client-kill", "leadership-move"}
    assert seen >= {"coordinator-loss", "open-transactions", "commit-in-flight"}
    assert not seen & {"mirror-kill", "failover-planned", "failover-forced", "mirror-behind"}


def test_a_fault_of_mirrors_cannot_be_played_on_one_cluster() -> None:
    with pytest.raises(InputError, match="no fault of mirror-kill can be played on A "):
        generate(1, 1, Coverage(), GeneratorBounds(topologies=("A",), faults=("mirror-kill",)))


def test_one_cluster_among_pairs_leaves_these_their_mirror() -> None:
    bounds = GeneratorBounds(topologies=("A", "A->B"))
    assert bounds.kinds == ("shadow", "none")
    kinds = {
        bool(m.topology.links): m.mirror.kind
        for m in (generate(5, number, Coverage(), bounds, guided=False) for number in range(1, 20))
    }
    assert kinds == {False: "none", True: "shadow"}


BUILDS = """\
schema = 1
name = "mine"
topology = "A:3"
progress_within = 40.0

[cluster.A.config]
"log.cleaner.threads" = 2

[topics]
partitions = 4
config = { "max.message.bytes" = 900000 }

[minimums]
reads = 77

[[workload]]
kind = "idempotent"
home = "A"
clients = 3
options = { rate = 10.0, via = "proxy" }

[[workload]]
kind = "readers"
home = "A"

[[fault]]
id = "never"
fault = "broker-kill"
target = "A/2"
at = 1.0
"""
"""The scenario of an author whose build has no transactions; its fault is not drawn."""


def like(tmp_path: Path, text: str, *faults: str) -> GeneratorBounds:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    made = of_scenario(scenario_file.read(path, seed=0), GeneratorBounds(faults=faults))
    made.check()
    assert msgspec.json.decode(msgspec.json.encode(made), type=GeneratorBounds) == made
    return made


def test_only_the_faults_are_drawn_of_runs_like_a_scenario(tmp_path: Path) -> None:
    bounds = like(tmp_path, BUILDS)
    example = scenario_file.read(tmp_path / "mine.toml", seed=0)
    seen: set[str] = set()
    for number in range(1, 31):
        made = generate(7, number, Coverage(), bounds, guided=False)
        check(made, "process")
        same = replace(example, name=made.name, about=made.about, seed=made.seed)
        assert replace(made, schedule=example.schedule) == same
        assert "never" not in {fault.id for fault in made.schedule}
        waits = [name for fault in made.schedule for name, _ in condition(fault.when).triggers]
        assert {*waits} <= {"under-way"}, "no client has transactions that a fault could wait for"
        seen |= {fault.fault for fault in made.schedule} | {*waits}
    assert seen >= {"link-cut", "broker-kill", "client-kill", "leadership-move", "under-way"}
    assert baseline(7, bounds).workloads == example.workloads


def test_runs_like_a_pair_fail_over_once_enough_was_written(tmp_path: Path) -> None:
    text = BUILDS.replace('"A:3"', '"A->B"').partition("[[fault]]")[0]
    bounds = like(tmp_path, text + '[mirror]\nkind = "mm2"\n', *FAILOVERS)
    for number in range(1, 11):
        made = generate(7, number, Coverage(), bounds)
        check(made, "process")
        assert made.mirror.kind == "mm2"
        first, *_ = made.schedule
        assert ("under-way", 400) in condition(first.when).triggers


def test_no_fault_of_a_path_is_drawn_that_no_client_of_the_scenario_takes(tmp_path: Path) -> None:
    bounds = like(tmp_path, BUILDS.replace('via = "proxy"', 'via = "direct"'), "link-cut")
    with pytest.raises(InputError, match="no fault of link-cut can be played on A:3 "):
        generate(1, 1, Coverage(), bounds)


def test_no_fault_waits_for_clients_at_a_home_without_workloads(tmp_path: Path) -> None:
    text = BUILDS.replace('"A:3"', '"A<->B"').partition("[[fault]]")[0]
    bounds = like(tmp_path, text + '[mirror]\nkind = "mm2"\n', "client-kill", "client-pause")
    targets = {
        fault.target
        for number in range(1, 11)
        for fault in generate(7, number, Coverage(), bounds, guided=False).schedule
    }
    assert targets == {"A"}


def test_every_pair_of_releases_is_drawn_before_one_is_drawn_often() -> None:
    releases, coverage, pairs = ("4.1.2", "4.2.0", "4.3.1"), Coverage(), []
    for number in range(1, 13):
        made = generate(5, number, coverage, GeneratorBounds(kafka=releases))
        coverage = coverage.with_run(cells_of(made))
        pairs.append(tuple(cluster.kafka for cluster in made.topology.clusters))
    assert len(set(pairs)) >= 8


def test_each_library_alone_and_all_by_turns_are_drawn_and_played() -> None:
    bounds, coverage = GeneratorBounds(clients=("librdkafka", "java")), Coverage()
    seen: list[str] = []
    bounds.check()
    for number in range(1, 31):
        made = generate(5, number, coverage, bounds)
        check(made, "process")
        coverage = coverage.with_run(cells_of(made))
        seen += {workload.library for workload in made.workloads}
    assert len(seen) == 30, "all clients of one run are of one kind"
    assert {name: seen.count(name) > 1 for name in seen} == {
        "librdkafka": True,
        "java": True,
        "librdkafka,java": True,
    }
    assert generate(5, 1, Coverage(), GeneratorBounds()) == generate(
        5, 1, Coverage(), GeneratorBounds(clients=("librdkafka",))
    )


def test_clients_that_there_are_not_are_refused() -> None:
    with pytest.raises(InputError, match="there are no clients 'jav'"):
        GeneratorBounds(clients=("jav",)).check()


def test_coverage_counts_repeated_faults_and_their_options() -> None:
    made = generate(37, 8, Coverage(), EVERY, guided=False)
    kill = replace(
        made.schedule[0],
        fault="client-kill",
        target="A",
        options={"workload": "readers"},
        when="always",
    )
    cells = cells_of(replace(made, schedule=(kill, replace(kill, id="again"))))
    kind = made.mirror.kind
    assert {f"again/client-kill/{kind}", f"how/client-kill/workload=readers/{kind}"} <= cells
    assert f"again/client-kill/{kind}" not in cells_of(replace(made, schedule=(kill,)))


def test_a_fault_that_waits_for_many_others_is_written_and_read(tmp_path: Path) -> None:
    made = generate(37, 8, Coverage(), EVERY, guided=False)
    first = [replace(made.schedule[0], id=f"{n}-{'x' * 20}", when="always") for n in range(20)]
    last = replace(
        made.schedule[0],
        id="last",
        when=f"after:{','.join(fault.id for fault in first)} and open-transactions:2",
    )
    (tmp_path / "made.toml").write_text(
        scenario_file.render(replace(made, schedule=(*first, last)))
    )
    assert scenario_file.read(tmp_path / "made.toml", seed=0).schedule[-1].when == last.when


@settings(max_examples=10)
@given(seed=seeds, number=st.integers(1, 1000))
def test_the_same_seed_number_and_coverage_give_the_same_scenario(seed: int, number: int) -> None:
    coverage = Coverage(hits={"strike/link-cut/plain/link-1/shadow": 3})
    assert generate(seed, number, coverage, EVERY) == generate(seed, number, coverage, EVERY)
    assert generate(seed, number, coverage, EVERY) != generate(seed, number + 1, coverage, EVERY)


@settings(max_examples=60)
@given(seed=seeds)
def test_no_fault_targets_a_dead_cluster(seed: int) -> None:
    """After a forced failover no fault targets its source or links into it until its mirror was
    reversed."""
    made = generate(seed, 1, Coverage(), EVERY, guided=False)
    down: set[str] = set()
    for fault in made.schedule:
        source = fault.target.split("->")[0].split("/")[0]
        if fault.fault == "mirror-reverse":
            down.discard(source)
        elif fault.fault != "failover-forced":
            assert source not in down, scenario_file.render(made)
        else:
            down.add(source)


@settings(max_examples=30)
@given(seed=seeds)
def test_a_broker_that_is_alone_is_not_restarted_and_no_coordinator_is_taken_from_its_cluster(
    seed: int,
) -> None:
    made = generate(seed, 1, Coverage(), EVERY, guided=False)
    for fault in made.schedule:
        if fault.fault in ("broker-restart", "coordinator-loss", "controller-loss"):
            assert made.topology.cluster(fault.target.split("/")[0]).brokers >= 3


def test_old_segments_are_deleted_only_where_what_is_judged_stays() -> None:
    made = [generate(5, n, Coverage(), EVERY, guided=False) for n in range(300)]
    deleting = [one for one in made if "retention.bytes" in one.topics.config]
    assert deleting
    assert {one.mirror.kind for one in deleting} == {"shadow"}
    assert not [f for one in deleting for f in one.schedule if f.fault.startswith("failover-")]


def test_large_records_come_in_small_operations() -> None:
    sizes = {
        (int(w.options["value_size"]), int(w.options.get("records", 20)))
        for number in range(400)
        for w in generate(5, number, Coverage(), EVERY, guided=False).workloads
        if "value_size" in w.options
    }
    assert {size for size, _ in sizes} == {1, 50, 2000, 20_000}
    assert max(size * records for size, records in sizes) == 40_000


def test_a_fault_waits_for_no_more_open_partitions_than_there_are() -> None:
    made = [generate(11, n, Coverage(), EVERY, guided=False) for n in range(300)]
    waiting = [
        one for one in made if any("open-partitions" in fault.when for fault in one.schedule)
    ]
    assert {one.topics.partitions for one in waiting} >= {1, 2}
    for one in waiting:
        asked = [trigger for fault in one.schedule for trigger in condition(fault.when).triggers]
        assert (
            max(int(least or 1) for name, least in asked if name == "open-partitions")
            <= one.topics.partitions
        )


def test_every_fault_that_the_runtime_can_do_is_drawn() -> None:
    upgraded = GeneratorBounds(topologies=("A:3->B",), kafka=("4.1.2",))
    every = (*drawn(EVERY, 400, seed=7), *drawn(upgraded, 100, seed=7))
    left_out = IN_CONTAINERS | OF_PROGRAMS - ON_THE_WIRE | OF_CERTIFICATES | LOSSY | PRIVILEGED
    assert {f.fault for f in every} == set(FAULTS) - left_out - set(OF_BROKERS_MIRRORS)
    docker = GeneratorBounds(topologies=("A:3->B",), runtime="docker")
    contained = {f.fault for f in drawn(docker, 400, seed=7)}
    assert contained >= IN_CONTAINERS
    assert not contained & IN_PROCESSES


def test_secured_topologies_are_drawn_as_they_are_and_with_faults_of_their_certificates() -> None:
    bounds = GeneratorBounds(topologies=("A{tls+scram}->B{mtls}",))
    bounds.check()
    made = [generate(7, n, Coverage(), bounds, guided=False) for n in range(60)]
    assert {tuple(cluster.security for cluster in one.topology.clusters) for one in made} == {
        ("tls+scram", "mtls")
    }
    assert {f.fault for one in made for f in one.schedule} >= OF_CERTIFICATES
    assert not set(GeneratorBounds(topologies=("A{tls}->B{scram}",)).allowed) & OF_CERTIFICATES


def test_a_fault_without_a_family_is_drawn_from_the_day_it_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Strange(BrokerKill):
        """A fault that the generator does not know."""

        @classmethod
        def applies_to(cls, target: str, topology: Topology) -> str | None:
            return None if target == "B" else "only B"

    registry = {**FAULTS, "strange": Strange}
    for module in (schedule, generator.packages, generator.bounds):
        monkeypatch.setattr(module, "FAULTS", registry)
    monkeypatch.setattr("linkflap.chaos.faults.FAULTS", registry)
    only = GeneratorBounds(faults=("strange",))
    made = generate(1, 1, Coverage(), only, guided=False)
    assert {(f.fault, f.target) for f in made.schedule} == {("strange", "B")}


def test_coverage_guides_towards_what_was_not_hit() -> None:
    bounds = GeneratorBounds(faults=("link-cut", "link-latency"))
    link_cut = Coverage(
        hits={
            cell: 1000
            for n in range(60)
            for cell in cells_of(generate(3, n, Coverage(), bounds))
            if "link-cut" in cell
        }
    )
    guided = [f.fault for n in range(40) for f in generate(9, n, link_cut, bounds).schedule]
    uniform = [
        f.fault for n in range(40) for f in generate(9, n, link_cut, bounds, guided=False).schedule
    ]
    assert guided.count("link-cut") / len(guided) < uniform.count("link-cut") / len(uniform)


def test_guided_suites_cover_more_than_uniform_ones() -> None:
    def covered(guided: bool) -> int:
        coverage = Coverage()
        for n in range(60):
            coverage = coverage.with_run(cells_of(generate(11, n, coverage, EVERY, guided=guided)))
        return len(coverage.hits)

    assert covered(True) > 1.1 * covered(False)


def test_the_baseline_breaks_nothing() -> None:
    made = baseline(5, EVERY)
    assert made.schedule == ()
    assert made.workloads


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        (GeneratorBounds(mirrors=("morror",)), "there is no mirror 'morror'"),
        (GeneratorBounds(faults=("link-cut", "lonk-cut")), "there is no fault 'lonk-cut'"),
        (GeneratorBounds(topologies=("A->",)), "A->"),
        (GeneratorBounds(topologies=()), "at least one topology"),
    ],
)
def test_bounds_with_unknown_names(bounds: GeneratorBounds, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        bounds.check()


def test_bounds_in_which_nothing_can_be_played() -> None:
    sentence = "no fault of broker-restart can be played on A->B with mirror shadow; allow more"
    with pytest.raises(InputError, match=sentence):
        generate(1, 1, Coverage(), GeneratorBounds(faults=("broker-restart",)))


@pytest.mark.parametrize(
    ("target", "topology", "where"),
    [
        ("A->B", "A->B", "link-1"),
        ("B->C", "A->B->C", "link-2"),
        ("B->A", "A->B", "back-1"),
        ("*->A", "A->B", "clients"),
        ("A/1", "A->B->C", "source"),
        ("B/1", "A->B->C", "middle"),
        ("C", "A->B->C", "destination"),
        ("C->A", "A->B->C->A", "link-1"),
    ],
)
def test_positions(target: str, topology: str, where: str) -> None:
    assert position(target, parse(topology)) == where


def test_faults_that_want_the_same_follow_one_another_and_others_overlap() -> None:
    import random

    draft = Draft(topology=parse("A->B"), rng=random.Random(1))

    def holds(*names: str) -> Wants:
        return Wants(holds=frozenset(names))

    first = draft.add("link-cut", "A->B", holds("x"))
    other = draft.add("link-cut", "A->B", holds("y"))
    both = draft.add("link-cut", "A->B", holds("x", "y"))
    last = draft.add("link-cut", "A->B", Wants(needs=frozenset(["y"])))
    assert condition(first.when).after == condition(other.when).after == ()
    assert condition(both.when).after == (first.id, other.id)
    assert condition(last.when).after == (both.id,)  # what that one follows is implied


def test_an_overlapped_fault_follows_everything_that_its_overlap_follows() -> None:
    """Otherwise the overlapped fault may be over before the other ends, and this one could never
    begin."""
    both = 0
    for seed in range(300):
        made = generate(seed, 1, Coverage(), EVERY, guided=False)
        waits = {fault.id: condition(fault.when) for fault in made.schedule}

        def before(id_: str, waits: dict[str, Condition] = waits) -> set[str]:
            return {b for a in waits[id_].after for b in (a, *before(a))}

        for once in waits.values():
            for overlapped in once.during:
                both += bool(once.after)
                assert {*once.after} <= before(overlapped)
    assert both


@pytest.mark.parametrize(
    ("mirrored", "copies_transactions", "waited_for"),
    [
        ({"B->C"}, True, set()),
        ({"A->B", "B->C"}, True, {"mirror-behind", "open-at-destination"}),
        ({"A->B", "B->C"}, False, {"mirror-behind"}),
    ],
)
def test_no_trigger_waits_for_what_a_mirror_never_has(
    mirrored: set[str], copies_transactions: bool, waited_for: set[str]
) -> None:
    """Clients have come back to A, and no mirror leads from there: a mirror from B to C has nothing
    to be behind of. One that writes in no transactions has none open at its destination."""
    seen = set()
    for seed in range(60):
        draft = Draft(
            topology=parse("A->B->C"),
            rng=random.Random(seed),
            copies_transactions=copies_transactions,
        )
        draft.up, draft.mirrored, draft.at = {"A", "B", "C"}, set(mirrored), {"A": "A"}
        seen |= {
            name
            for name, _ in generator.packages.moment(
                "link-latency", "B->C", draft, Wants()
            ).triggers
        }
    assert seen & {"mirror-behind", "open-at-destination"} == waited_for
    assert "transactions-ended" in seen


def test_a_failover_within_a_disturbance_finds_clients_that_have_begun_before_that() -> None:
    """A flap of two seconds is over before a busy machine has ended so many transactions."""
    within = 0
    for seed in range(200):
        made = generate(seed, 1, Coverage(), EVERY, guided=False)
        faults = {fault.id: fault for fault in made.schedule}
        first = next((fault for fault in made.schedule if fault.name.fails_over), None)
        if first is None:
            continue
        for id_ in condition(first.when).during:
            within += 1
            assert "transactions-ended" in dict(condition(faults[id_].when).triggers)
            assert "transactions-ended" not in dict(condition(first.when).triggers)
    assert within


def _forced(made: Scenario) -> list[tuple[FaultSpec, bool]]:
    """The forced failovers of a scenario, and whether a failback follows each."""
    behind = [made.schedule[n + 1 :] for n in range(len(made.schedule))]
    found = zip(made.schedule, behind, strict=True)
    return [
        (fault, any(other.name.reverses for other in later))
        for fault, later in found
        if fault.name.forced
    ]


def test_many_a_failback_has_something_to_truncate() -> None:
    drawn = [
        one
        for n in range(150)
        for one in _forced(generate(1, n, Coverage(), GeneratorBounds(), guided=False))
    ]
    during = [bool(condition(fault.when).during) for fault, back in drawn if back]
    assert sum(during) > len(during) / 3, (sum(during), len(during))
    alone = [bool(condition(fault.when).during) for fault, back in drawn if not back]
    assert sum(alone) < len(alone) / 3, "a cut is added for failbacks alone"


def test_drawn_failback_truncates_no_log_that_another_mirror_copies() -> None:
    seen = 0
    bounds = GeneratorBounds(topologies=("A->B->C", "A->B,A->C"))
    for n in range(100):
        scenario = generate(3, n, Coverage(), bounds, guided=False)
        forced: dict[str, bool] = {}
        for fault in scenario.schedule:
            if fault.name.fails_over:
                forced[fault.target] = fault.name.forced
            if fault.name.reverses:
                copies = [
                    link.name
                    for link in scenario.topology.links
                    if link.source == fault.on.source and link.destination != fault.on.destination
                ]
                assert not (copies and forced[fault.target]), (n, fault, copies)
                seen += 1
    assert seen > 5


def test_no_link_cut_is_added_where_a_suite_does_not_name_it() -> None:
    bounds = GeneratorBounds(faults=("failover-forced", "mirror-reverse"))
    made = [generate(1, n, Coverage(), bounds, guided=False) for n in range(40)]
    assert any(back for scenario in made for _, back in _forced(scenario))
    assert {fault.fault for scenario in made for fault in scenario.schedule} == {
        "failover-forced",
        "mirror-reverse",
    }


def test_partitions_are_added_only_while_every_link_is_mirrored() -> None:
    seen = 0
    faults = ("partitions-added", "failover-planned", "failover-forced", "mirror-reverse")
    bounds = GeneratorBounds(most=8, faults=faults)
    for n in range(400):
        mirrored = {"A->B"}
        for fault in generate(5, n, Coverage(), bounds, guided=False).schedule:
            if fault.name.fails_over:
                mirrored.discard(fault.target)
            elif fault.name.reverses:
                mirrored.add(f"{fault.on.destination}->{fault.on.source}")
            elif fault.fault == "partitions-added":
                assert "A->B" in mirrored, (n, fault)
                seen += 1
    assert seen > 5


def test_no_fault_waits_for_more_records_behind_than_an_operation_has() -> None:
    """A mirror that works is behind by what is in flight: with one record per operation a fault
    would wait for 20 until its time is over."""
    seen: set[int] = set()
    for seed in range(150):
        made = generate(seed, 1, Coverage(), EVERY, guided=False)
        writers = [w for w in made.workloads if w.kind == "transactional"]
        records = max(int(w.options.get("records", 20)) for w in writers)
        if any("mirror-behind:20" in fault.when for fault in made.schedule):
            assert records >= 20, made.schedule
            seen.add(records)
        elif any("mirror-behind" in fault.when for fault in made.schedule):
            seen.add(-records)
    assert seen >= {20, -1, -5}


def test_faults_on_the_wire_are_one_family_and_their_clients_connect_through_recorders() -> None:
    named = (*sorted(ON_THE_WIRE), "link-cut")
    bounds = GeneratorBounds(topologies=("A->B", "A"), mirrors=("mm2",), faults=named)
    seen: list[str] = []
    for number in range(1, 31):
        made = generate(7, number, Coverage(), bounds, guided=False)
        check(made, runtime="process")
        first, *others = (w.options.get("via") for w in made.workloads if w.kind != "relay")
        drawn = {fault.fault for fault in made.schedule}
        usual = None if made.topology.links else "proxy"
        wire = bool(ON_THE_WIRE & drawn)
        assert first == ("wire" if wire else usual)
        # one cluster: the proxies of clients lead to the recorder
        assert set(others) == {"wire" if wire and made.topology.links else usual}
        seen += [fault.fault for fault in made.schedule]
    assert set(seen) == set(named)
    assert sum(fault == "link-cut" for fault in seen) > len(seen) / 3


def test_faults_on_the_wire_are_drawn_where_clients_can_connect_through_recorders() -> None:
    def drawn_on(*topologies: str) -> bool:
        return ON_THE_WIRE.issubset(GeneratorBounds(topologies=topologies).allowed)

    assert drawn_on("A->B", "A")
    assert drawn_on("A{tls}->B{tls+scram}")
    assert not drawn_on("A->B", "A{mtls}->B")
    assert not drawn_on("A{tls}")  # its clients' path may get another certificate
    scenario = generate(7, 1, Coverage(), GeneratorBounds(), guided=False)
    assert not ON_THE_WIRE & set(of_scenario(scenario, GeneratorBounds()).allowed)


def test_links_to_services_are_broken_too_as_far_as_that_can_be_measured() -> None:
    store = ServiceSpec(command=("store", "{port}"), protocol="http")
    alone = ClusterSpec(name="A", config={"broker.rack": "{store}"}, services={"store": store})
    like = scenario_of(
        Topology(clusters=(alone,), links=()),
        NO_MIRROR,
        workloads=(WorkloadSpec(kind="idempotent", home="A"),),
    )
    faults = drawn(of_scenario(like, GeneratorBounds()), 60)
    on_service = {fault.fault for fault in faults if fault.target == "A->store"}
    assert on_service == {"link-cut", "link-flap", "link-half-open", "link-latency", "link-reset"}
    killing = of_scenario(like, GeneratorBounds(faults=("service-kill",)))
    assert {fault.target for fault in drawn(killing)} == {"A->store"}
    assert position("A->store", like.topology) == "service"
