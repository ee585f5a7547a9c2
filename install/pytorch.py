"""Installs PyTorch into this virtual environment: without CUDA where no NVIDIA driver is found.

    .venv/bin/python install/pytorch.py [--index URL]

On Linux the package index has the build with CUDA's libraries, which takes gigabytes. The first
line that applies decides:

1. PyTorch is installed in the version of constraints.txt: it stays.
2. The system is not Linux, or has an NVIDIA driver: what pip finds.
3. pip's settings offer a build with a label, such as 2.13.0+cpu: pip prefers it.
4. PyTorch's index for CPUs answers within five seconds: its build.
5. Otherwise: what pip finds, and a line says so.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
INDEX = "https://download.pytorch.org/whl/cpu"
SECONDS = 5.0  # for the answer of the index
# of the whole environment of `make demo`; `make demo` prints the size that it got
WITHOUT_CUDA, WITH_CUDA = "1.1 GB installed", "4.9 GB installed"
LIBRARY = "libcuda.so.1"  # of the driver


def pinned() -> str:
    """The version of PyTorch in constraints.txt."""
    found = re.search(r"^torch==(\S+)$", CONSTRAINTS.read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{CONSTRAINTS} has no line torch==VERSION")
    return found[1]


def is_installed(version: str) -> bool:
    """Whether this environment has a build of a version of PyTorch."""
    try:
        return installed_version("torch").partition("+")[0] == version
    except PackageNotFoundError:
        return False


def has_driver() -> bool:
    """Whether this system, or the Windows below WSL, has an NVIDIA driver."""
    if shutil.which("nvidia-smi") is not None:
        return True
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def label(version: str, versions: str) -> str | None:
    """The label of the build that pip prefers, of the versions that it lists; None without one.

    >>> label("2.13.0", "Available versions: 2.14.1, 2.13.0+cpu, 2.13.0, 2.12.0")
    'cpu'
    >>> label("2.13.0", "Available versions: 2.13.0, 2.12.0+cpu") is None
    True
    """
    labels = re.findall(rf"(?<![\w.]){re.escape(version)}\+([\w.]+)", versions)
    return labels[0] if labels else None  # pip lists the highest first, and installs it


def offered(version: str) -> str | None:
    """The label of the build that pip's settings offer; None if they offer none with a label."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    listed = subprocess.run(command, capture_output=True, text=True)
    return label(version, listed.stdout) if listed.returncode == 0 else None


def fault_of(index: str, version: str, seconds: float = SECONDS) -> str | None:
    """Why an index of PyTorch cannot be used; None if it lists the version in time."""
    # an index writes the sign + of a label as it is, or as %2B
    wanted = re.compile(rf"torch-{re.escape(version)}(\+|%2B)cpu-", re.IGNORECASE)
    fault: list[str | None] = [f"does not answer within {seconds:g} s"]

    def ask() -> None:
        try:
            with urlopen(f"{index}/torch/", timeout=seconds) as answer:
                page = answer.read().decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            fault[0] = f"does not answer ({getattr(error, 'reason', error)})"
        else:
            fault[0] = None if wanted.search(page) else f"has no PyTorch {version}"

    # the limit of a socket starts again with each byte, and looking up a name has none
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return fault[0]


def choice(version: str, index: str) -> tuple[list[str], str]:
    """Further arguments of pip, and a line on the build that it then installs."""
    if sys.platform != "linux":
        return [], f"PyTorch {version} of the package index: {WITHOUT_CUDA}"
    if has_driver():
        return [], f"an NVIDIA driver was found: PyTorch {version} with CUDA: {WITH_CUDA}"
    if found := offered(version):
        size = WITHOUT_CUDA if found.startswith("cpu") else WITH_CUDA
        return [], f"PyTorch {version}+{found}, which pip's settings offer: {size}"
    fault = fault_of(index, version)
    if fault is None:
        return ["--extra-index-url", index], f"PyTorch {version} for CPUs: {WITHOUT_CUDA}"
    return [], (
        f"PyTorch's index for CPUs {fault}, so pip installs what it finds: PyTorch {version} with "
        f"CUDA's libraries, {WITH_CUDA} (docs/installing.md names other ways)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Install PyTorch, without CUDA where no NVIDIA "
                                     "driver is found.")  # fmt: skip
    parser.add_argument("--index", default=INDEX, help=f"index for CPUs ({INDEX})")
    index = parser.parse_args().index.rstrip("/")
    if sys.prefix == sys.base_prefix:
        sys.exit("install/pytorch.py: run it with the Python of a virtual environment (.venv)")
    version = pinned()
    if is_installed(version):
        return
    further, line = choice(version, index)
    print(line, flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    command = [*pip, "--constraint", str(CONSTRAINTS), *further, f"torch=={version}"]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
