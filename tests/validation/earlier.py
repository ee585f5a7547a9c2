"""What an earlier commit computes: `python -m tests.validation.earlier COMMIT CHECKOUT`.

CHECKOUT is a folder with the files of COMMIT (`git worktree add`). Its own commands make small
stores of many recipes and train tiny operators. `tests/data` keeps the digests of all arrays,
weights and losses in COMMIT.json, and in COMMIT one store and one checkpoint for later readers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from safetensors.numpy import load_file

DATA = Path(__file__).parents[1] / "data"
SHOWN = 8  # values of each array that are kept beside its digest

# Points of each axis, where the recipe's own are too many; solvers keep their own grids.
RESOLUTIONS = {
    "airfoil-quick": None,  # takes half a minute
    "burgers-2d": 32,
    "burgers-quick": 64,
    "burgers-r10": 64,
    "burgers-shock": 64,
    "burgers-trajectory": 64,
    "darcy-421-published": 29,
    "darcy-85": 29,
    "darcy-fem": 29,
    "darcy-lognormal": 29,
    "darcy-quick": 29,
    "elasticity-hyperelastic": 12,
    "elasticity-quick": 12,
    "fisher-kpp": 64,
    "heat": 64,
    "inviscid-burgers-quick": 64,
    "kdv": 64,
    "ns-quick": 32,
    "pipe-quick": 33,
    "plasticity-quick": 21,
    "pulses-quick": 64,
    "shock-tube-quick": 64,
}


def _set(**settings: object) -> list[str]:
    pairs = (f"{key.replace('__', '.')}={value}" for key, value in settings.items())
    return [word for pair in pairs for word in ("--set", pair)]


_SHARED = _set(training__epochs=2, training__batch=4)
_SIZES = {"train": 8, "validation": 2, "test": 2}
_SPLITS = _set(**{f"splits.{name}": size for name, size in _SIZES.items()})
_LINE = _set(modes=31, problem__solver__resolution=64)
_SMALL = _set(model__width=8, depth=1, model__feedforward=8, decoder_width=8)

# Stores to train on, as words of `pdegen` up to `--out`.
STORES = {
    "burgers": ["generate", "burgers-quick", "--samples", "12", "--resolution", "32",
                *_LINE, *_SPLITS],
    "darcy": ["generate", "darcy-quick", "--samples", "12", "--resolution", "15",
              *_set(modes=15), *_SPLITS],
    "vorticity": ["generate", "ns-quick", "--samples", "12", *_SPLITS],
    "elasticity": ["generate", "elasticity-quick", "--samples", "12", "--resolution", "12",
                   *_SPLITS],
    "nodal": ["import", "a.npy", "u.npy", "--input", "a", "--target", "u", "--grid", "nodal",
              *(word for name, size in _SIZES.items() for word in ("--split", f"{name}={size}"))],
    "noisy": ["noise", "burgers.zarr", "--variable", "u", "--levels", "0,0.1"],
}  # fmt: skip

# Trainings, as words of `pdegen train` up to `--out`; each on the store that it names.
RUNS = {
    "burgers": ["burgers-quick", "--data", "burgers.zarr", *_SMALL,
                *_set(data__resolution=32, resolutions="[32]", modes=3)],
    "darcy": ["darcy-quick", "--data", "darcy.zarr", *_SMALL,
              *_set(data__resolution=15, resolutions="[15]", latent=7, model__modes=3,
                    head_width=8)],
    "inverse": ["darcy-inverse-quick", "--data", "darcy.zarr", *_SMALL,
                *_set(data__resolution=15, data__target_resolution=5, resolutions="[15]",
                      head_width=8, noise__level=0.05)],
    "stream": ["burgers-stream-quick", "--stream", "burgers-quick", *_SMALL,
               *_set(data__epoch_samples=8, data__resolution=32, resolutions="[32]", modes=3,
                     data__overrides__samples=12, data__overrides__problem__resolution=32,
                     data__overrides__modes=31, data__overrides__problem__solver__resolution=64),
               *_set(**{f"data.overrides.splits.{k}": v for k, v in _SIZES.items()})],
    "rollout": ["ns-fno-quick", "--data", "vorticity.zarr",
                *_set(model__width=4, model__modes=3, depth=2)],
    "cloud": ["elasticity-transolver-quick", "--data", "elasticity.zarr",
              *_set(data__resolution=108, resolutions="[108]", model__width=8, model__depth=1,
                    model__heads=2, model__slices=4, model__feedforward=8)],
    "nodal": ["--model", "fno", "--data", "nodal.zarr",
              *_set(model__width=4, model__depth=1, model__modes=3)],
}  # fmt: skip


def nodal() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and solutions of -u'' = π²k² a, a = c sin(πkx), which vanish at both ends."""
    x = np.linspace(0, 1, 17)
    u = np.array([c * np.sin(np.pi * k * x) for k in (1, 2, 3) for c in (0.5, 1.0, 1.5, 2.0)])
    return np.repeat([[1.0], [4.0], [9.0]], 4, axis=0) * u + 1, u


def recipe_command(name: str) -> list[str]:
    """The command that makes a small store of a recipe."""
    points = RESOLUTIONS[name]
    size = ["--resolution", str(points)] if points else []
    splits = _set(splits__train=2, splits__validation=1, splits__test=1)
    words = ["generate", name, "--samples", "4", *size, *splits]
    return [*words, "--out", f"recipes/{name}.zarr"]


def other_commands() -> list[list[str]]:
    """Commands in their order: stores to train on, trainings, and an evaluation."""
    found = [[*words, "--out", f"{name}.zarr"] for name, words in STORES.items()]
    found += [["train", *words, *_SHARED, "--out", f"runs/{name}"] for name, words in RUNS.items()]
    best = "runs/burgers/best.safetensors"
    return [*found, ["evaluate", best, "--data", "burgers.zarr", "--out", "scores.json"]]


# one process for all commands, whose arguments are lists in its input
_DRIVER = """
import json, sys
from pipelines.cli import main
for words in json.load(sys.stdin):
    sys.argv = ["pdegen", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
"""
# by whose products of matrices the digests were made: OpenBLAS has other sums for other processors
_BLAS = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "512"}


def make(checkout: Path, folder: Path, commands: list[list[str]]) -> None:
    """Run commands by the packages of a checkout, in a folder."""
    for path, values in zip(("a.npy", "u.npy"), nodal(), strict=True):
        np.save(folder / path, values)
    environment = {**os.environ, **_BLAS, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER], cwd=folder, env=environment, text=True,
        input=json.dumps(commands), capture_output=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)


def machine() -> dict[str, Any]:
    """All that bits depend on beside the code."""
    config: Any = np.show_config(mode="dicts")
    simd = config["SIMD Extensions"]
    packages = {name: version(name) for name in ("numpy", "scipy", "numba", "torch")}
    return {"machine": platform.machine(), "simd": simd.get("found", []), **packages}


def digest(values: np.ndarray) -> dict[str, Any]:
    """SHA-256 and some values of an array."""
    values = np.ascontiguousarray(values)
    at = np.linspace(0, values.size - 1, min(SHOWN, values.size)).astype(int)
    return {
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        "values": [float(f"{float(value):.9g}") for value in values.reshape(-1)[at]],
        "scale": float(np.abs(values).max(initial=0)),
    }


def store_digests(url: Path) -> dict[str, dict[str, Any]]:
    """Digest of each array of numbers of a store."""
    group = zarr.open_group(str(url), mode="r")
    arrays = {name: np.asarray(array[...]) for name, array in sorted(group.arrays())}
    return {name: digest(values) for name, values in arrays.items() if values.dtype.kind in "biuf"}


def run_digests(folder: Path) -> dict[str, dict[str, Any]]:
    """Digests of the losses and scores of all epochs, and of the weights of the last one."""
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    numbers = {key: np.array([epoch[key] for epoch in history]) for key in ("loss", "score", "lr")}
    weights = load_file(folder / "last.safetensors")
    return {key: digest(value) for key, value in sorted({**numbers, **weights}.items())}


def computed(folder: Path) -> dict[str, Any]:
    """Digests of all that `make` left in a folder, by the name of what was made."""
    stores = sorted([*folder.glob("recipes/*.zarr"), *folder.glob("*.zarr")])
    return {
        "on": machine(),
        "scores": json.loads((folder / "scores.json").read_text())["errors"],
        "arrays": {
            **{str(url.relative_to(folder)): store_digests(url) for url in stores},
            **{f"runs/{name}": run_digests(folder / "runs" / name) for name in RUNS},
        },
    }


def text(result: dict[str, Any]) -> str:
    """The result in JSON, with one line for each array."""
    return re.sub(r"\n(    +|   (?=[}\]]))", " ", json.dumps(result, indent=1)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="its short name")
    parser.add_argument("checkout", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, kept = Path(name), DATA / arguments.commit
        commands = [*map(recipe_command, RESOLUTIONS), *other_commands()]
        make(arguments.checkout.resolve(), folder, commands)
        kept.with_suffix(".json").write_text(text(computed(folder)), "utf-8")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(
            folder / "burgers.zarr", kept / "burgers.zarr", ignore=shutil.ignore_patterns("log")
        )
        shutil.copy(folder / "runs/burgers/best.safetensors", kept)


if __name__ == "__main__":
    main()
