"""The job files under a real Slurm and a real Ray here: nothing lost, doubled or repeated."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

from tests.benchmarks.rows import Findings
from tests.real.server import ROOT

SLURM, RAY = "slurm", "ray"
_COUNTS = re.compile(
    r"^ +(?P<what>.+): \d+ rows, (\d+) lost, (\d+) doubled, (\d+) failed, (\d+) calls repeated$",
    re.MULTILINE,
)


def slurm() -> Findings:
    """`jobs/slurm/test.sh`: a cluster that is set up for it and thrown away."""
    found = Findings(SLURM)
    if shutil.which("sbatch") is None or shutil.which("slurmctld") is None:
        found.skipped = "no Slurm here; apt-get install slurm-wlm munge"
        return found
    done = subprocess.run(
        ["bash", "jobs/slurm/test.sh"], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    for counts in _COUNTS.finditer(done.stdout):
        lost, doubled, failed, repeated = map(int, counts.groups()[1:])
        note = f"{lost} lost, {doubled} doubled, {failed} failed, {repeated} calls repeated"
        found.exactly(f"Slurm, {counts['what']}", lost + doubled + failed + repeated, 0, note)
    found.exactly("Slurm, exit status", done.returncode, 0, done.stderr[-300:])
    return found


def ray() -> Findings:
    """The test of two actors, one of which is killed, and of actors with servers of their own."""
    found = Findings(RAY)
    if not (ROOT / ".venv-ray" / "installed").exists():
        found.skipped = "no Ray here; make setup-ray"
        return found
    command = [sys.executable, "-m", "pytest", "-q", "-m", "ray", "tests/contract/test_jobs.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    last = done.stdout.strip().splitlines()[-1:]
    found.exactly(
        "Ray, an actor killed: lost, doubled, recorded calls repeated",
        done.returncode,
        0,
        "0 lost, 0 doubled, 0 repeated" if done.returncode == 0 else " ".join(last),
    )
    return found
