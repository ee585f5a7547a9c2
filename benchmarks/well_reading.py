"""Shuffled batches of 8 from a store, and from HDF5 files of The Well by its reader.

    python -m benchmarks.well_reading [--samples 1024] [--rounds 7]

Samples of `darcy-141` are written to a store and to a contiguous file in The Well's format. Each
trajectory of the file has two frames, a and u: the input and the target. A PyTorch DataLoader reads
`WellDataset` without worker processes: once by default, with coordinates and boundaries in every
batch, and once with the fields alone, whose pairs are compared with those of the store. "first
epoch" compares each shard with its recorded SHA-256; "epoch" reads the store again. Figures are
medians of processor seconds of all threads, and ratios within interleaved rounds. Files are in the
page cache, and the process keeps its memory.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np
import torch
from google_crc32c import value as crc32c
from torch.utils.data import DataLoader

from benchmarks.extras import needed
from benchmarks.history import show
from benchmarks.timing import interleaved, ratio, rounded
from operators.data import Batch, Samples, open_pairs
from operators.training.step import keep_memory
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.store.reading import Store, verified_shards

BATCH = 8
FIELDS_ALONE = {"return_grid": False, "boundary_return_type": None}
_AXES = ("x", "y")


def write_well(path: Path, store: Store) -> None:
    """Write a and u of all samples as trajectories of two frames.

    Format: PolymathicAI/the_well, docs/data_format.md.
    """
    samples, *grid = store.array("a").shape
    once = {"sample_varying": False, "time_varying": False}
    with h5py.File(path, "w") as file:
        file.attrs.update({
            "dataset_name": "darcy", "grid_type": "cartesian", "n_spatial_dims": len(grid),
            "n_trajectories": samples, "simulation_parameters": [],
        })  # fmt: skip
        dimensions = file.create_group("dimensions")
        dimensions.attrs["spatial_dims"] = list(_AXES)
        points = {name: store.values(name) for name in _AXES}
        for name, values in {"time": np.arange(2), **points}.items():
            dimensions.create_dataset(name, data=values.astype("f4")).attrs.update(once)
        for name, values in points.items():
            wall = file.create_group(f"boundary_conditions/{name}_wall")
            wall.attrs.update({**once, "bc_type": "WALL", "associated_dims": [name],
                               "associated_fields": []})  # fmt: skip
            wall["mask"] = np.isin(np.arange(len(values)), [0, len(values) - 1])
        for name in ("scalars", "t0_fields", "t1_fields", "t2_fields"):
            file.create_group(name).attrs["field_names"] = ["u"] if name == "t0_fields" else []
        frames = file.create_dataset("t0_fields/u", (samples, 2, *grid), "f4")
        frames.attrs.update({"dim_varying": [True] * len(grid), "sample_varying": True,
                             "time_varying": True})  # fmt: skip
        for shard in range(store.shards):
            rows = store.shard_range(shard)
            for frame, name in enumerate(("a", "u")):
                block = slice(rows.start, rows.stop)
                frames[block, frame] = np.asarray(store.values(name)[block])


def epoch(pairs: Samples) -> Iterator[Batch]:
    with closing(pairs.batches(seed=0, epoch=0, batch=BATCH)) as batches:
        yield from batches


def first_epoch(pairs: Samples) -> Iterator[Batch]:
    verified_shards().clear()
    yield from epoch(pairs)


def of_well(loader: DataLoader) -> Iterator[Batch]:
    for batch in loader:
        yield Batch(batch["input_fields"], batch["output_fields"])


def read(batches: Iterable[object]) -> None:
    for _ in batches:
        pass


def delivered(batches: Iterable[Batch]) -> list[int]:
    """Checksums of all pairs of functions, sorted."""
    return sorted(
        crc32c(a.tobytes() + u.tobytes())
        for batch in batches
        for a, u in zip(batch.a.numpy(), batch.u.numpy(), strict=True)
    )


def megabytes(loader: DataLoader) -> float:
    """Megabytes of all tensors of an epoch."""
    return rounded(sum(v.nbytes for batch in loader for v in batch.values()) / 1e6)


def compared(samples: int, rounds: int) -> dict[str, Any]:
    """Processor seconds of epochs, their megabytes, and ratios."""
    dataset = needed("the_well.data", "well").WellDataset
    recipe = load_recipe("darcy-141").with_overrides({"samples": samples})
    with tempfile.TemporaryDirectory() as folder:
        store = generate(recipe, f"{folder}/store", workers=2)
        path = Path(folder, "data.hdf5")
        write_well(path, store)
        pairs = open_pairs(store.url, (0, samples))
        loaders = {
            name: DataLoader(
                dataset(path=folder, **options), BATCH, shuffle=True, drop_last=True,
                generator=torch.Generator().manual_seed(0),
            )
            for name, options in {"fields alone": FIELDS_ALONE, "by default": {}}.items()
        }  # fmt: skip
        assert delivered(epoch(pairs)) == delivered(of_well(loaders["fields alone"]))
        jobs = {
            "epoch": lambda: read(epoch(pairs)),
            "first epoch": lambda: read(first_epoch(pairs)),
            **{
                f"WellDataset, {k}": lambda loader=loader: read(loader)
                for k, loader in loaders.items()
            },
        }
        seconds = interleaved(jobs, rounds, clock=time.process_time)
        return {
            "samples": samples,
            "points": pairs.a.shape[:-1],
            "MB delivered": {
                "epoch": rounded(pairs.reader.nbytes / 1e6),
                **{f"WellDataset, {k}": megabytes(loader) for k, loader in loaders.items()},
            },
            "MB stored": {
                "store": rounded(sum(f.stat().st_size for f in objects(store)) / 1e6),
                "HDF5": rounded(path.stat().st_size / 1e6),
            },
            **{f"{name}, s": rounded(median(times)) for name, times in seconds.items()},
            **{
                f"WellDataset, {k} / {ours}": ratio(seconds, f"WellDataset, {k}", ours)
                for k in loaders
                for ours in ("epoch", "first epoch")
            },
        }


def objects(store: Store) -> list[Path]:
    """The files of a and u."""
    return [f for name in ("a", "u") for f in Path(store.url, name).rglob("*") if f.is_file()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    needed("the_well.data", "well")
    torch.set_num_threads(1)
    keep_memory()  # as in training
    show("well", compared(options.samples, options.rounds))


if __name__ == "__main__":
    main()
