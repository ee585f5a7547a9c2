"""Removes the tests of the packages that this virtual environment holds.

    .venv/bin/python install/slim.py

Wheels carry folders `tests`, which no program imports, and PyTorch's wheel the programs that test
its C++ code. PyTorch's headers stay, because torch.compile needs them on a CPU.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

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


def main() -> None:
    """Remove them, and say how much that was."""
    if sys.prefix == sys.base_prefix:
        sys.exit("install/slim.py: run it with the Python of a virtual environment (.venv)")
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    files = {path for package in distributions(path=folders) for path in tests_of(package)}
    freed = sum(path.stat().st_size for path in files)
    for path in files:
        path.unlink()
    print(f"removed tests of installed packages: {freed / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
