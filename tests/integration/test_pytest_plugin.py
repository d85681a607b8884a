"""The fixtures in another project, with pytest in its own process, also with `-n`."""

from __future__ import annotations

import contextlib
from xml.etree import ElementTree

import psutil
import pytest

from linkflap.harness.machine import cache, ledger
from tests.command_line import use_ledger
from tests.waiting import eventually

pytest_plugins = ["pytester"]
CACHE = cache.folder()
"""The user's. `pytester` has a home of its own, in which every test would fetch Kafka and train the
class archives again: a minute each."""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A user's project, with linkflap installed, and nothing else of it."""
    use_ledger(monkeypatch, pytester.path / "ledger")
    monkeypatch.setenv("LINKFLAP_CACHE", str(CACHE))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    return pytester


def ours(project: pytest.Pytester) -> list[psutil.Process]:
    """Running processes that were started with this project's ledger, watchdogs (which end last)
    included."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it may end at any step
            mine = process.environ().get("LINKFLAP_RUNTIME_DIR") == str(project.path / "ledger")
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def assert_nothing_left(project: pytest.Pytester) -> None:
    eventually(
        "everything that pytest started to be gone",
        lambda: not ours(project),
        state=lambda: ours(project),
    )
    assert ledger.entries() == []


def test_two_tests_have_clusters_of_their_own_at_the_same_time(project: pytest.Pytester) -> None:
    project.makepyfile("""
        import linkflap, pathlib, pytest
        from linkflap.harness.model.wait import until

        def meet(name, up, request):
            here = pathlib.Path(request.config.rootpath)
            bootstraps = " ".join(cluster.bootstrap for cluster in up.clusters.values())
            (here / f"{name}.partial").write_text(bootstraps)
            (here / f"{name}.partial").rename(here / f"{name}.up")
            both = lambda: len(list(here.glob("*.up"))) == 2
            until(both, within=300, what="the other test to have its clusters as well")
            both = [set(path.read_text().split()) for path in here.glob("*.up")]
            assert not both[0] & both[1]

        @pytest.mark.linkflap(topology="A->B")
        def test_one(linkflap_deployment, request):
            meet("one", linkflap_deployment, request)
            a = linkflap_deployment.clusters["A"]
            a.create_topic("orders", partitions=3, config={"cleanup.policy": "compact"})
            with pytest.raises(linkflap.InputError, match="a topic orders on cluster A already"):
                a.create_topic("orders")

        def test_other(linkflap_deployment, request):
            assert [link.name for link in linkflap_deployment.topology.links] == ["A->B"]
            meet("other", linkflap_deployment, request)
        """)
    done = project.runpytest_subprocess("-n", "2", timeout=900)
    done.assert_outcomes(passed=2)
    assert_nothing_left(project)


@pytest.mark.spark
def test_runs_of_two_workers_are_judged_by_one_spark_what_is_wrong_fails_the_test_and_spark_ends(
    project: pytest.Pytester,
) -> None:
    project.makepyfile("""
        import pytest
        from linkflap.harness.machine import cache, ledger
        from linkflap.harness.model.wait import until

        def judged_once(run, request):
            assert run.folder.joinpath("verdict.json").is_file()
            assert run.folder.joinpath("report.html").is_file()
            assert (run.document["scenario"], run.document["seed"]) == ("baseline", 7)
            assert run.document["run"] == str(run.folder)
            here = request.config.rootpath
            (here / f"{request.node.name}.judged").write_text("")
            both = lambda: len(list(here.glob("*.judged"))) == 2
            until(both, within=400, what="the other run to be judged")
            serving = [entry for entry in ledger.entries() if entry.serves]
            # one service, with Spark's JVM
            assert [len(entry.children) for entry in serving] == [1]
            run.require_valid()

        @pytest.mark.linkflap("baseline", seed=7, producer_ids="negate")
        def test_run(linkflap_run, request):
            judged_once(linkflap_run, request)

        @pytest.mark.linkflap("baseline", seed=7)
        def test_other(linkflap_run, request):
            judged_once(linkflap_run, request)
        """)
    done = project.runpytest_subprocess("-n", "2", "--junitxml=junit.xml", timeout=900)
    done.assert_outcomes(failed=1, passed=1)
    cases = {
        case.get("name"): case
        for case in ElementTree.parse(project.path / "junit.xml").iter("testcase")
    }
    said = {
        name: {p.get("name"): p.get("value") for p in case.iter("property")}
        for name, case in cases.items()
    }
    assert {name: of["linkflap-verdict"] for name, of in said.items()} == {
        "test_run": "invalid",
        "test_other": "valid",
    }
    assert "linkflap-anomaly" in said["test_run"].keys() - said["test_other"].keys()
    again, folder, failure = (
        said["test_run"]["linkflap-again"],
        said["test_run"]["linkflap-run"],
        cases["test_run"].find("failure"),
    )
    assert again is not None
    assert again.startswith("pytest ")
    assert folder is not None
    assert folder.endswith("test_run.run")
    assert failure is not None
    assert "run again: pytest" in str(failure.get("message"))
    done.stdout.re_match_lines(
        [
            "linkflap: invalid: .* @ [0-9]+.*",
            "see it: linkflap explain .*test_run.run 1",
            ".*aborted-read: invalid: .*",
            ".*run directory: .*test_run.run",
            ".*run again: pytest .*::test_run.*",
        ]
    )
    assert_nothing_left(project)


def test_clusters_are_used_again_until_a_test_leaves_them_changed(project: pytest.Pytester) -> None:
    """The third leaves a toxic, so that the fourth gets new clusters; the first two share clusters
    and use their own names."""
    project.makepyfile("""
        import pytest

        pytestmark = pytest.mark.linkflap(topology="A->B")
        seen = []

        def used(up):
            names = up.topic("A"), up.group(), up.transactional_id()
            seen.append((up.clusters["A"].bootstrap, *names))

        def test_one(linkflap_shared):
            used(linkflap_shared)

        def test_two(linkflap_shared):
            used(linkflap_shared)
            one, two = seen
            assert one[0] == two[0]
            assert not {*one[1:]} & {*two[1:]}

        def test_three(linkflap_shared):
            used(linkflap_shared)
            assert seen[2][0] == seen[0][0]
            linkflap_shared.links["*->A"].add_toxic("latency", "requests", {"latency": 5})

        def test_four(linkflap_shared):
            used(linkflap_shared)
            assert seen[3][0] != seen[0][0]
            assert linkflap_shared.links["*->A"].toxics() == []

        @pytest.mark.linkflap(reuse="modul")
        def test_five(linkflap_shared):
            pass
        """)
    done = project.runpytest_subprocess(timeout=900)
    done.assert_outcomes(passed=4, errors=1)
    done.stdout.re_match_lines_random(
        [
            (
                "linkflap: the clusters A->B are replaced after .*::test_three: link [*]->A has the"
                " toxics .*"
            ),
            ".*cannot have reuse='modul' .did you mean 'module'.*",
        ]
    )
    assert_nothing_left(project)


def test_failure_before_the_test_is_an_error_of_one_sentence(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime is the marker's, else the environment's."""
    monkeypatch.setenv("LINKFLAP_PORTS", "28200-28203")
    monkeypatch.setenv("LINKFLAP_RUNTIME", "boat")
    project.makepyfile("""
        import pytest

        @pytest.mark.linkflap(runtime="process")
        def test_poor(linkflap_deployment):
            pass

        @pytest.mark.linkflap(topology="A->", runtime="process")
        def test_wrong(linkflap_deployment):
            pass

        @pytest.mark.linkflap(scenario="link-flop")
        def test_unknown(linkflap_run):
            pass

        def test_by_the_environment(linkflap_deployment):
            pass

        @pytest.mark.linkflap(scenario="baseline")
        def test_run_by_the_environment(linkflap_run):
            pass

        @pytest.mark.linkflap(runtime="canoe")
        def test_by_the_marker(linkflap_deployment):
            pass
        """)
    done = project.runpytest_subprocess(timeout=600)
    done.assert_outcomes(errors=6)
    done.stdout.re_match_lines(
        [
            "linkflap: .*28200.*28203.*LINKFLAP_PORTS.*",
            "linkflap: topology 'A->'.*",
            "linkflap: there is no scenario 'link-flop'.*",
            "linkflap: there is no runtime 'boat'.*",
            "linkflap: there is no runtime 'boat'.*",
            "linkflap: there is no runtime 'canoe'.*",
        ]
    )
    done.stdout.no_fnmatch_line("*Traceback*")
    assert_nothing_left(project)
