"""`python -m tests.benchmarks [--json FILE] [PART …]`: every measure and its bound.

Exit status: 0 every bound is kept, 1 one is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tests.benchmarks.client_cost import client_cost
from tests.benchmarks.clusters import ray, slurm
from tests.benchmarks.cpu import cpu
from tests.benchmarks.fleet import fleet
from tests.benchmarks.layers import layers
from tests.benchmarks.peers import peers
from tests.benchmarks.rows import Findings
from tests.benchmarks.scale import scale
from tests.benchmarks.simulated import simulated

PARTS: dict[str, Callable[[], Findings]] = {
    "client_cost": client_cost,
    "layers": layers,
    "peers": peers,
    "simulated": simulated,
    "cpu": cpu,
    "scale": scale,
    "fleet": fleet,
    "slurm": slurm,
    "ray": ray,
}

#: `make bench`; fleet, slurm and ray are `make scale`.
BENCH = ("client_cost", "layers", "peers", "simulated", "cpu", "scale")


def show(findings: Findings) -> None:
    console = Console(width=150)
    if findings.rows:
        table = Table(title=findings.part, title_justify="left", box=SIMPLE)
        table.add_column("measure", no_wrap=True)
        table.add_column("value", justify="right", no_wrap=True)
        table.add_column("bound", justify="right", no_wrap=True)
        table.add_column("note")
        for row in findings.rows:
            style = None if row["ok"] else "red"
            value = f"{row['value']:,.{0 if row['value'] >= 10 else 3}f}"
            table.add_row(row["measure"], value, row["bound"] or "", row["note"], style=style)
        console.print(table)
    if findings.skipped:
        console.print(f"{findings.part}, left out: {findings.skipped}", style="yellow")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.benchmarks", description=__doc__)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="gets rows and raw figures")
    options = parser.parse_args(arguments)
    if strange := set(options.part) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(strange))}")
    found = []
    for name in options.part or BENCH:
        findings = PARTS[name]()
        show(findings)
        found.append(findings)
    if options.json:
        document = {findings.part: asdict(findings) for findings in found}
        layout = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
        options.json.write_bytes(orjson.dumps(document, option=layout))
    return 0 if all(findings.ok for findings in found) else 1


if __name__ == "__main__":
    sys.exit(main())
