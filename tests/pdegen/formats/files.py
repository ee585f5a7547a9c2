"""Files with the keys, shapes and versions of published ones."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from operators.data import read_pairs
from pdegen.formats.arrays import FormatError
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.store.reading import Store
from tests.absent import absent
from tests.oracles.cole_hopf import cole_hopf
from tests.oracles.five_points import solve

CLASSES = {"float64": "double", "float32": "single", "bool": "logical", "uint8": "uint8"}


def random(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def burgers_pairs(samples: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Functions on the 8192 points of the published file, and their solutions."""
    x, numbers = np.arange(8192) / 8192, random(samples, 2, seed=seed)
    a = numbers[:, :1] + np.sin(2 * np.pi * (x + numbers[:, 1:]))
    return {"a": a, "u": cole_hopf(a, 0.1 / (2 * np.pi), 1 / (2 * np.pi)).astype(float)}


def darcy_pairs(
    samples: int, n: int, low: float = 3.0, high: float = 12.0, seed: int = 0
) -> dict[str, np.ndarray]:
    """Coefficients of two values on blocks of n/4 cells, and solutions at the cells' centres."""
    blocks = np.where(random(samples, 4, 4, seed=seed) > 0, high, low)
    a = blocks.repeat(n // 4, axis=1).repeat(n // 4, axis=2)
    return {"a": a.astype("float32"), "u": np.stack([solve(one) for one in a]).astype("float32")}


def of_mean_zero(u: np.ndarray, *axes: int) -> np.ndarray:
    """Numbers whose mean over some axes is 0, as of a vorticity."""
    return u - u.mean(axis=axes, keepdims=True, dtype=float).astype(u.dtype)


def mat5(path: Path, arrays: Mapping[str, np.ndarray], compressed: bool = False) -> Path:
    scipy.io.savemat(path, dict(arrays), do_compression=compressed)
    return path


def mat73(path: Path, arrays: Mapping[str, np.ndarray], **options: object) -> Path:
    """Write a MATLAB 7.3 file: a header of 512 bytes, and the axes reversed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            stored = values.astype("u1") if values.dtype == bool else values
            dataset = file.create_dataset(name, data=stored.T, **options)
            dataset.attrs["MATLAB_class"] = np.bytes_(CLASSES[values.dtype.name])
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + b"\0\2IM")
    return path


def mat5_compressed(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    return mat5(path, arrays, compressed=True)


def mat73_compressed(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    return mat73(path, arrays, compression="gzip", shuffle=True, fletcher32=True)


MATLAB = pytest.mark.parametrize(
    "write", [mat5, mat5_compressed, mat73, mat73_compressed], ids=lambda f: f.__name__
)


def hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values)
    return path


def imported(tmp_path: Path, *files: Path, **options: object) -> Store:
    return import_files(files, str(tmp_path / "store.zarr"), workers=1, **options)


def value(store: Store, name: str) -> np.ndarray:
    return store.values(name)


def trains(store: Store) -> None:
    """The store can be trained on: input and target of its training split are read."""
    pairs = read_pairs(store.url, "train")
    start, stop = store.raw_attributes["splits"]["train"]
    assert len(pairs) == stop - start


_MEASURED = """
import resource, sys
from pathlib import Path
from pdegen.formats.plan import ImportOptions
from pdegen.formats.arrays import FormatError
from pdegen.formats.plan import ImportOptions
from pdegen.formats.importing import import_files

def at_most():
    \"\"\"The most memory in kilobytes that was in use since the last call.\"\"\"
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")
    return int(status.split("VmHWM:")[1].split()[0])

at_most()
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, which can tell how much memory it took."""
    code = _MEASURED + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


BY_HAND = ImportOptions("p", "q", "nodal", {"train": 4})
PAIR = {"p": random(6, 8), "q": random(6, 8, seed=1)}


def refused(*files: Path, match: str) -> None:
    """An import fails in one line, and writes nothing."""
    url = files[0].parent / "store.zarr"
    with pytest.raises(FormatError, match=match) as caught:
        import_files(files, str(url), BY_HAND, workers=1)
    assert "\n" not in str(caught.value)
    assert not url.exists()


def neuralop_file(name: str) -> Path:
    """A file that neuraloperator 0.3.0 ships, later ones do not; `make` lays it beside the
    environment. Where it is missing tests are skipped, and fail in CI."""
    path = Path(sys.prefix) / "samples" / "neuralop" / "datasets" / "data" / name
    if not path.is_file():
        absent(
            "samples of neuraloperator are missing: pip install --no-deps neuraloperator==0.3.0 "
            f"--target {sys.prefix}/samples"
        )
    return path
