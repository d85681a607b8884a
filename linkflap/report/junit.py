"""JUnit XML of verdicts: one suite per run, one case per check, as CI systems show it.

invalid is a failure, with the anomalies as its text. unknown is an error, because nothing was
proven and a build must not pass over it. not due is skipped. Allowed anomalies are in the case's
output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from linkflap.harness.model.texts import printable
from linkflap.harness.model.verdict import (
    Anomaly,
    CheckResult,
    ClientDeath,
    Document,
    Verdict,
    worst,
)
from linkflap.report.document import in_short, read


def write(path: Path, documents: Sequence[Mapping[str, object]], *, failed: str = "") -> None:
    """Writes the documents of one or several runs to `path`, and creates its folders. `failed`: how
    the recorded command failed, which becomes a separate case."""
    command = CheckResult(name="command", verdict=Verdict.INVALID, reason=failed)
    suites = [_suite(read(document), [command] if failed else []) for document in documents]
    root = Element("testsuites", _totals(suites) | {"name": "linkflap"})
    root.extend(suites)
    indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _totals(suites: Iterable[Element]) -> dict[str, str]:
    return {
        name: str(sum(int(suite.get(name, "0")) for suite in suites))
        for name in ("tests", "failures", "errors")
    }


def _suite(judged: Document, also: Sequence[CheckResult]) -> Element:
    checks = list(judged.checks)
    if not checks or judged.verdict is not worst(check.verdict for check in checks):
        # The reason is in no single check: a fault that did not bite, a damaged directory, nothing
        # examined at all.
        checks.append(
            CheckResult(
                name="run", verdict=judged.verdict, reason=judged.reason or "see the report"
            )
        )
    checks += also
    count = {
        verdict: str(sum(1 for check in checks if check.verdict is verdict)) for verdict in Verdict
    }
    suite = Element(
        "testsuite",
        name=printable(judged.scenario or "linkflap"),
        tests=str(len(checks)),
        failures=count[Verdict.INVALID],
        errors=count[Verdict.UNKNOWN],
        skipped=count[Verdict.NOT_DUE],
    )
    properties = SubElement(suite, "properties")
    for name in ("run", "seed", "runtime", "mirror", "verdict"):
        SubElement(properties, "property", name=name, value=printable(str(getattr(judged, name))))
    if judged.allowed:
        SubElement(properties, "property", name="allowed", value=printable(judged.allowed))
    for failover in judged.failovers:
        name, value = f"failover {failover.link}", f"{failover.kind}: {failover.costs}"
        SubElement(properties, "property", name=printable(name), value=printable(value))
    for death in judged.clients_died:
        SubElement(properties, "property", _death(death))
    for check in checks:
        _case(suite, judged, check)
    return suite


def _death(death: ClientDeath) -> dict[str, str]:
    """A property: which process of clients died, or ended well, and how."""
    name = "client-ended" if death.done else "client-died"
    value = f"{', '.join(death.clients)} ({death.process}, {death.how})"
    return {"name": name, "value": printable(value)}


def _case(suite: Element, judged: Document, check: CheckResult) -> None:
    case = SubElement(
        suite,
        "testcase",
        classname=printable(f"linkflap.{judged.scenario or 'run'}"),
        name=printable(check.name),
    )
    violations = [anomaly for anomaly in judged.violations if anomaly.check == check.name]
    if check.verdict is Verdict.INVALID:
        found = f"{check.anomalies} anomalies" if check.anomalies else ""
        message = ": ".join(filter(None, [found, check.reason]))
        SubElement(case, "failure", type="invalid", message=printable(message)).text = _listed(
            violations
        )
    elif check.verdict is Verdict.UNKNOWN:
        SubElement(
            case, "error", type="unknown", message=printable(check.reason or "unknown")
        ).text = _listed(violations)
    elif check.verdict is Verdict.NOT_DUE:
        SubElement(case, "skipped", message=printable(check.reason))
    allowed = [anomaly for anomaly in judged.departures if anomaly.check == check.name]
    examined = (
        ", ".join(f"{where} {number}" for where, number in check.examined.items()) or "nothing"
    )
    lines = [
        f"examined: {examined}",
        *(f"allowed: {anomaly.kind} {anomaly.where}: {anomaly.why}" for anomaly in allowed),
    ]
    SubElement(case, "system-out").text = printable("\n".join(lines))


def _listed(anomalies: Sequence[Anomaly]) -> str:
    return printable(
        "\n".join(f"{a.kind} {a.where} {in_short(dict(a.evidence))}" for a in anomalies)
    )
