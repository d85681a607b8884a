"""Writes docs/map.md: every module with the first sentence of what it promises.

python docs/make_map.py > docs/map.md
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "linkflap": "The one name to import",
    "linkflap/api": "What it offers programs",
    "harness/model": "Pure values and protocols, of the standard library and msgspec's ranges",
    "harness/model/events": "Events: one class for each kind",
    "harness/model/protocols": "The seams: what runtimes, mirrors, workloads and faults are to each other",
    "harness/log": "Kafka's log format",
    "harness/rundir": "The run directory",
    "harness": "Beside the packages of the harness",
    "harness/cli": "The command line",
    "harness/cli/doctor": "What a machine lacks",
    "harness/recording": "The recording half: one run",
    "harness/suite": "Suites: many generated runs",
    "harness/machine": "What a process holds of this machine",
    "harness/guarantees": "What mirrors promise",
    "harness/wire": "What is asked of clusters in several places",
    "harness/jvm": "A JVM that Python drives",
    "harness/runtimes": "What brokers and links run in",
    "harness/runtimes/toxiproxy": "Links, through Toxiproxy",
    "harness/runtimes/kraft": "Clusters, whatever they run in",
    "harness/runtimes/process": "Clusters as child processes",
    "harness/runtimes/docker": "Clusters in containers",
    "harness/runtimes/docker/images": "The images of containers",
    "harness/runtimes/distribution": "Kafka and toxiproxy-server, fetched once per user",
    "harness/mirrors": "What replicates over a link",
    "harness/mirrors/cluster_mirroring": "KIP-1279 itself, on a build of its branch",
    "harness/mirrors/command": "A mirror of the user's own",
    "harness/mirrors/shadow": "The offset-exact mirror",
    "harness/mirrors/shadow/log": "The mirrored log",
    "harness/mirrors/shadow/source": "What a shadow fetches from the source",
    "harness/mirrors/shadow/destination": "The shadow as a broker of the destination",
    "harness/mirrors/shadow/failover": "Failover of the shadow mirror",
    "harness/mirrors/shadow/failback": "Failback of the shadow mirror",
    "harness/workloads": "Clients with a purpose",
    "harness/workloads/java": "Kafka's own Java clients",
    "harness/capture": "Raw logs and watermarks",
    "harness/capture/live": "Logs of clusters that run and that nobody here started",
    "harness/report": "What a person sees",
    "harness/judging": "From run directories to verdicts and reports",
    "chaos": "What is broken, and when",
    "chaos/faults": "The faults, one file each",
    "chaos/cases": "Edge cases of KIPs and releases",
    "chaos/cases/kafka": "Cases of released Kafka",
    "chaos/cases/mirror_maker": "Cases of MirrorMaker 2",
    "chaos/cases/cluster_mirroring": "Cases of the KIP-1279 threads",
    "chaos/cases/judged": "Cases that are scenarios",
    "chaos/cases/guarantees": "Cases of guarantees",
    "chaos/cases/tools": "What the steps of cases share",
    "chaos/generator": "Scenarios that are generated",
    "chaos/scenario_file": "Scenarios that users write",
    "chaos/scenarios": "The named scenarios",
    "topologies": "Clusters and links, and their notation",
    "spark_verify": "The judging half",
    "spark_verify/read": "From run directories to views",
    "spark_verify/facts": "What is known of a partition",
    "spark_verify/checks": "The checks, one file each",
    "spark_verify/checks/parts": "What several checks share",
    "spark_verify/spark": "The Spark job",
    "spark_verify/verdict": "From findings to the verdict",
    "spark_verify/inspect": "Back to the bytes",
    "benchmarks": "Ratios against a named baseline",
}
LISTED = {
    "chaos/faults": "`linkflap list`",
    "chaos/scenarios": "`linkflap list`",
    "chaos/cases/kafka": "docs/track-record.md",
    "chaos/cases/mirror_maker": "docs/track-record.md",
    "chaos/cases/cluster_mirroring": "docs/track-record.md",
    "chaos/cases/judged": "docs/track-record.md",
    "chaos/cases/guarantees": "docs/track-record.md",
    "spark_verify/checks": "docs/checks.md",
}
"""Folders of things that have a name each, and where those are listed: a map has only what is beside them."""


def promise(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())


def is_listed(path: Path) -> bool:
    """Whether the list of its folder has a module: every module of cases, others by their name."""
    folder = str(path.parent.relative_to(ROOT))
    named = promise(path).startswith(f"{path.stem.replace('_', '-')}: ") or folder.startswith("chaos/cases/")
    return folder in LISTED and path.stem != "__init__" and named


def render() -> str:
    """The whole page."""
    lines = ["# Where everything is", "", "Made by `python docs/make_map.py > docs/map.md` from what each module says of itself."]
    for folder, title in PACKAGES.items():
        modules = sorted(p for p in (ROOT / folder).glob("*.py") if promise(p))
        if modules:
            lines += ["", f"## {title}: `{folder}/`", ""]
            lines += [f"- `{path.name}`: {promise(path)}" for path in modules if not is_listed(path)]
            if folder in LISTED:
                count = sum(is_listed(path) for path in modules)
                lines.append(f"- and {count} more, each with the name of what it holds: see {LISTED[folder]}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
