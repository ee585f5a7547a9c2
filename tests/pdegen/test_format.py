"""The format module is quick to import, and readable by both packages."""

import subprocess
import sys

SLOW = ("torch", "dask", "zarr", "xarray", "scipy", "numba", "fsspec")


def test_importing_the_format_imports_nothing_large():
    code = f"import sys, pdegen.store.format; print([m for m in {SLOW} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
