"""suite.html: self-contained, failures first, and it names what was never hit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from linkflap.chaos.cases.results import reproduced
from linkflap.chaos.generator import GeneratorBounds, baseline, generate
from linkflap.chaos.generator.coverage import Coverage
from linkflap.suite import page, regression
from linkflap.suite.folder import RunResult, SuiteFolder
from linkflap.suite.plan import Plan

PLAN = Plan(
    name="smoke",
    seed=7,
    seconds=60,
    jobs=2,
    bounds=GeneratorBounds(faults=("link-cut", "broker-pause")),
)
CELLS = (
    "strike/link-cut/mirror-behind/link-1/shadow",
    "after/broker-pause/link-cut",
    "on/shadow/A->B",
)


def suite(root: Path) -> SuiteFolder:
    made = SuiteFolder.create(root / "suite", PLAN)
    for number in range(3):
        made.write_scenario(
            number,
            generate(7, number, Coverage(), PLAN.bounds) if number else baseline(7, PLAN.bounds),
        )
    made.append(
        RunResult(number=0, verdict="valid", cells=("on/shadow/A->B",), seconds=20.0, ended=30.0)
    )
    missed = ("1-link-cut: open-partitions:2",)
    made.append(
        RunResult(number=1, verdict="valid", cells=CELLS, missed=missed, seconds=20.0, ended=40.0)
    )
    cause = "<script>alert(1)</script> is lost"
    made.append(
        RunResult(
            number=2,
            verdict="invalid",
            kinds=("lost-write:lost-write",),
            cause=cause,
            seconds=20.0,
            ended=60.0,
        )
    )
    return made


def test_failures_come_first_with_their_command(tmp_path: Path) -> None:
    text = page.write(suite(tmp_path)).read_text()
    assert text.index("lost-write:lost-write") < text.index('<h2 id="runs">')
    assert re.search(r"linkflap run \S*scenarios/0002.toml --runtime process", text)
    rows = re.findall(r'<span class="word (\w+)">', text)
    assert rows == ["invalid", "valid", "valid"]
    assert "The baseline (the same clients without faults) is valid." in text


def test_it_is_self_contained_and_escapes_what_comes_from_runs(tmp_path: Path) -> None:
    text = page.write(suite(tmp_path)).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
    links = re.findall(r'href="([^#"][^"]*)"', text)
    assert all(link == "data:," or (tmp_path / "suite" / link).exists() for link in links)


def test_hit_and_never_hit_cells(tmp_path: Path) -> None:
    text = page.write(suite(tmp_path)).read_text()
    row = re.search(r'<td class="code nowrap">link-cut</td>(.*?)</tr>', text)
    assert row
    assert row[1].count(">1<") == 1
    assert row[1].count(">never<") == row[1].count("<td") - 1
    assert "open-partitions:2" in text
    assert "Options of shadow" in text


def test_of_one_scenario_run_again_there_is_no_coverage(tmp_path: Path) -> None:
    made = suite(tmp_path)
    made.plan = replace(made.plan, given="x")
    assert '<h2 id="coverage">' not in page.write(made).read_text()


def test_a_regression_suite_has_a_page(tmp_path: Path) -> None:
    made = SuiteFolder.create(tmp_path / "suite", replace(PLAN, name="regression"))
    regression.write_entries(made, reproduced()[:3])
    gone = ("regression:x",)
    made.append(
        RunResult(
            number=1,
            verdict="invalid",
            reason="NOT REPRODUCED 0 of 3",
            kinds=gone,
            cause="it was before",
        )
    )
    made.append(RunResult(number=0, verdict="valid", reason="REPRODUCED 1 of 1"))
    text = page.write(made).read_text()
    assert re.findall(r'<span class="word ([\w-]+)">', text) == ["invalid", "not-played", "valid"]
    assert f"linkflap case run {reproduced()[1].case.name} " in text


def test_whose_clients_runs_had_is_counted_where_there_was_a_choice(tmp_path: Path) -> None:
    own = GeneratorBounds(clients=("librdkafka", "java"))
    folder = SuiteFolder.create(tmp_path / "suite", replace(PLAN, bounds=own))
    hit = [
        (),
        ("clients/shadow/java",),
        ("clients/shadow/java",),
        ("clients/shadow/librdkafka,java",),
    ]
    for number, cells in enumerate(hit):
        folder.write_scenario(
            number, generate(7, number, Coverage(), own) if number else baseline(7, own)
        )
        folder.append(
            RunResult(
                number=number,
                verdict="valid",
                cells=("on/shadow/A->B", *cells),
                seconds=20.0,
                ended=30.0,
            )
        )
    text = page.write(folder).read_text()
    table = text[text.index("Client libraries") :]
    assert re.findall(
        r"<td[^>]*>(\d+|never)</td>", table.partition("</tr></tbody>")[0].partition("</table>")[0]
    ) == [
        "1",
        "2",
        "1",
    ]
    assert "Client libraries" not in page.write(suite(tmp_path / "usual")).read_text()
