"""Removes what this virtual environment holds and no program reads: tests and symbol tables.

    .venv/bin/python install/slim.py

Wheels carry folders `tests`, which no program imports, and PyTorch's wheel the programs that test
its C++ code. PyTorch's headers stay, because torch.compile needs them on a CPU. Libraries carry
symbol tables, which debuggers read; where there is `strip` (binutils, on Linux) the largest lose
them, as those of distributions do. What programs link with is in another table, which stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

_STRIPPED = {"torch", "llvmlite", "numcodecs"}  # nine tenths of all symbol tables
_NEEDED = "torch_shm_manager"  # the one program of torch/bin that PyTorch starts


def unread(path: PurePosixPath) -> bool:
    """Whether a file of an installed package belongs to its tests.

    >>> unread(PurePosixPath("scipy/linalg/tests/test_solve.py"))
    True
    >>> unread(PurePosixPath("numpy/testing/__init__.py"))
    False
    """
    match path.parts:
        case ("torch", "test", *_):
            return True
        case ("torch", "bin", name):
            return name != _NEEDED
        case ("..", *_):  # outside site-packages
            return False
        case (_, *folders, _):
            return "tests" in folders
    return False


def tests_of(package: Distribution) -> Iterator[Path]:
    """The files of its tests that are there."""
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if unread(PurePosixPath(file)) and path.is_file():
            yield path


def library(path: PurePosixPath) -> bool:
    """Whether a file of an installed package is a library that loses its symbol table.

    >>> library(PurePosixPath("torch/lib/libtorch_cpu.so"))
    True
    >>> library(PurePosixPath("scipy.libs/libopenblas.so"))
    False
    """
    return path.parts[0] in _STRIPPED and path.suffix == ".so"


def stripped(path: Path, strip: str) -> int:
    """Take the symbol table from a library; returns the bytes that are saved.

    The library is replaced as a whole, so that one whose work breaks off is as it was.
    """
    before, other = path.stat().st_size, path.with_suffix(".stripped")
    try:
        done = subprocess.run([strip, "--strip-unneeded", "-o", other, path], capture_output=True)
        if done.returncode or other.stat().st_size >= before:
            return 0
        shutil.copymode(path, other)
        os.replace(other, path)
    finally:
        other.unlink(missing_ok=True)
    return before - path.stat().st_size


def libraries_of(package: Distribution) -> Iterator[Path]:
    """Its libraries that are there."""
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if library(PurePosixPath(file)) and path.is_file():
            yield path


def main() -> None:
    """Remove them, and say how much that was."""
    if sys.prefix == sys.base_prefix:
        sys.exit("install/slim.py: run it with the Python of a virtual environment (.venv)")
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    packages = list(distributions(path=folders))
    files = {path for package in packages for path in tests_of(package)}
    freed = sum(path.stat().st_size for path in files)
    for path in files:
        path.unlink()
    print(f"removed tests of installed packages: {freed / 1e6:.0f} MB")
    strip = shutil.which("strip")
    if strip and sys.platform == "linux":
        freed = sum(stripped(path, strip) for package in packages for path in libraries_of(package))
        print(f"removed symbol tables of libraries: {freed / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
