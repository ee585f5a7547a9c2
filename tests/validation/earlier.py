"""What earlier commits compute: `python -m tests.validation.earlier COMMIT CHECKOUT`.

CHECKOUT is a folder with the files of COMMIT (`git worktree add`). Its own commands make small
stores of every recipe, train tiny operators and evaluate them; `tests/data` keeps the digests of
the arrays, some values, one store, the checkpoints and their scores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import zarr

DATA = Path(__file__).parents[1] / "data"
SPLITS = {"splits.train": 2, "splits.validation": 1, "splits.test": 1}
SAMPLES = 4
# Points of each axis; every solver keeps its own grid, or its refinement of this one.
RESOLUTIONS = {
    "burgers-quick": 64,
    "burgers-r10": 64,
    "burgers-r10-as-printed": 64,
    "burgers-shock": 64,
    "burgers-trajectory": 64,
    "darcy-141": 29,
    "darcy-421": 29,
    "darcy-421-published": 29,
    "darcy-85": 29,
    "darcy-fem": 29,
    "darcy-lognormal": 29,
    "darcy-quick": 29,
}
SHOWN = 8  # values of each array that are kept beside its digest

# Stores to train on, as words of `pdegen generate`, or as arrays that are imported.
STORES = {
    "burgers": ["burgers-quick", "--samples", "12", "--resolution", "32", "--set", "modes=31",
                "--set", "problem.solver.resolution=64"],
    "darcy": ["darcy-quick", "--samples", "12", "--resolution", "15", "--set", "modes=15"],
}  # fmt: skip
_SIZES = ["train=8", "validation=2", "test=2"]
_SHORT = ["--set", "training.epochs=2", "--set", "training.batch=4"]
# Trainings, as words of `pdegen train`, each on the store of its name.
TRAININGS = {
    "burgers": ["burgers-quick", "--set", "data.resolution=32", "--set", "resolutions=[32]",
                "--set", "model.width=8", "--set", "depth=1", "--set", "model.feedforward=8",
                "--set", "modes=3", "--set", "decoder_width=8", *_SHORT],
    "darcy": ["darcy-quick", "--set", "data.resolution=15", "--set", "resolutions=[15]",
              "--set", "model.width=12", "--set", "depth=1", "--set", "model.feedforward=12",
              "--set", "latent=7", "--set", "model.modes=3", "--set", "decoder_width=6",
              "--set", "head_width=6", *_SHORT],
    "nodal": ["--model", "fno", "--set", "model.width=4", "--set", "model.depth=1",
              "--set", "model.modes=3", *_SHORT],
}  # fmt: skip


def generate_words(name: str) -> list[str]:
    """The command that makes the small store of a recipe, up to `--out`."""
    sets = [word for key, n in SPLITS.items() for word in ("--set", f"{key}={n}")]
    size = ["--samples", str(SAMPLES), "--resolution", str(RESOLUTIONS[name])]
    return ["generate", name, *size, *sets]


def store_words(name: str, folder: Path) -> list[str]:
    """The command that makes a store to train on, up to `--out`."""
    if name in STORES:
        sets = [word for size in _SIZES for word in ("--set", f"splits.{size}")]
        return ["generate", *STORES[name], *sets]
    a, u = folder / "a.npy", folder / "u.npy"
    for path, values in zip((a, u), nodal(), strict=True):
        np.save(path, values)
    splits = [word for size in _SIZES for word in ("--split", size)]
    return ["import", str(a), str(u), "--input", "a", "--target", "u", "--grid", "nodal", *splits]


def nodal() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and solutions of -u'' = π²k² a, a = c sin(πkx), which vanish at both ends."""
    x = np.linspace(0, 1, 17)
    u = np.array([c * np.sin(np.pi * k * x) for k in (1, 2, 3) for c in (0.5, 1.0, 1.5, 2.0)])
    return np.repeat([[1.0], [4.0], [9.0]], 4, axis=0) * u + 1, u


def digests(url: str | Path) -> dict[str, dict[str, Any]]:
    """SHA-256 and some values of each array of a store."""
    group = zarr.open_group(str(url), mode="r")
    kept = {}
    for name in sorted(group.array_keys()):
        array = group[name]
        assert isinstance(array, zarr.Array)
        values = np.ascontiguousarray(array[...])
        at = np.linspace(0, values.size - 1, SHOWN).astype(int)
        kept[name] = {
            "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
            "values": [float(value) for value in values.reshape(-1)[at]],
            "scale": float(np.abs(values).max()),
        }
    return kept


# by whose products of matrices the digests were made: OpenBLAS has other sums for other processors
BLAS = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "512"}


def machine() -> dict[str, Any]:
    """All that bits depend on beside the code."""
    config: Any = np.show_config(mode="dicts")
    simd = config["SIMD Extensions"]
    packages = {name: version(name) for name in ("numpy", "scipy", "numba", "torch")}
    return {"machine": platform.machine(), "simd": simd.get("found", []), **packages}


def _pdegen(checkout: Path, folder: Path, *words: str) -> None:
    program = "from pipelines.cli import main; main()"
    environment = {**os.environ, **BLAS, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-c", program, *words], cwd=folder, env=environment, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _kept(name: str) -> dict[str, Any]:
    path = DATA / name
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _keep(name: str, content: dict[str, Any]) -> None:
    (DATA / name).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def bits(commit: str, checkout: Path, folder: Path) -> None:
    """Keep the digests of small stores of every recipe."""
    arrays = {}
    for name in RESOLUTIONS:
        _pdegen(checkout, folder, *generate_words(name), "--out", f"{name}.zarr")
        arrays[name] = digests(folder / f"{name}.zarr")
    _keep("bits.json", {**_kept("bits.json"), commit: {"on": machine(), "arrays": arrays}})


def trained(commit: str, checkout: Path, folder: Path) -> None:
    """Keep tiny checkpoints with their scores, and a store to read."""
    (DATA / "checkpoints").mkdir(exist_ok=True)
    scores = {}
    for name, words in TRAININGS.items():
        store, run = f"{name}-train.zarr", f"{name}-run"
        _pdegen(checkout, folder, *store_words(name, folder), "--out", store)
        _pdegen(checkout, folder, "train", *words, "--data", store, "--out", run)
        checkpoint = DATA / "checkpoints" / f"{name}-{commit}.safetensors"
        shutil.copy(folder / run / "best.safetensors", checkpoint)
        _pdegen(
            checkout, folder, "evaluate", str(checkpoint), "--data", store, "--out", "score.json"
        )
        scores[checkpoint.name] = json.loads((folder / "score.json").read_text())["errors"]
    _keep("scores.json", {**_kept("scores.json"), **scores})
    kept = DATA / "stores" / f"{commit}.zarr"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder / "burgers-train.zarr", kept, ignore=shutil.ignore_patterns("log"))


_PARTS = {"bits": bits, "trained": trained}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="its short name")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", choices=_PARTS, action="append")
    arguments = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for part in arguments.only or _PARTS:
            _PARTS[part](arguments.commit, arguments.checkout.resolve(), Path(name))


if __name__ == "__main__":
    main()
