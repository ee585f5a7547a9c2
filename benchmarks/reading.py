"""Reading for training: shuffled batches against Zarr alone, and against single samples at random.

python -m benchmarks.reading [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import zarr

from benchmarks.timing import interleaved, ratio, write_result
from operators.data import StreamedPairs, open_pairs
from pdegen.grid import CellGrid
from pdegen.layout import Coordinate, Layout, Variable
from pdegen.problem import provenance
from pdegen.store import Store, lay_out

N, SAMPLES, SHARD, BATCH = 141, 4096, 256, 8
RANDOM = 200  # samples read one by one, scaled to an epoch
ROUNDS = 5


def random_store(url: str) -> Store:
    """A sealed store of the size of 4096 Darcy samples: noise, which hardly compresses, and two
    phases, which do."""
    x = CellGrid(N).x
    axes = ("x", "y")
    made = lay_out(
        url,
        Layout(
            samples=SAMPLES,
            shard=SHARD,
            variables=tuple(Variable(name, axes, (N, N), "float32") for name in ("a", "u")),
            coordinates=tuple(Coordinate(name, (name,), x, {"grid": "cell"}) for name in axes),
            attributes={
                "title": "random",
                "equation": "none",
                "provenance": provenance(),
                "recipe": {"name": "random", "problem": {"equation": "darcy"}},
                "fingerprint": "0" * 64,
                "splits": {"train": [0, SAMPLES]},
            },
        ),
    )
    rng = np.random.default_rng(0)
    for shard in range(made.shards):
        u = rng.standard_normal((SHARD, N, N), dtype=np.float32)
        a = np.where(np.cumsum(u, axis=1) > 0, np.float32(12), np.float32(3))
        made.write_shard(shard, {"a": a, "u": u})
    made.seal()
    return made


def with_zarr_alone(group: zarr.Group) -> None:
    """All shards of both variables, one after another."""
    for start in range(0, SAMPLES, SHARD):
        for name in ("a", "u"):
            np.asarray(group[name][start : start + SHARD])  # pyright: ignore


def an_epoch(pairs: StreamedPairs) -> None:
    """All batches in random order."""
    with closing(pairs.batches(seed=0, epoch=0, batch=BATCH)) as batches:
        assert sum(len(a) for a, _ in batches) == SAMPLES


def one_by_one(group: zarr.Group) -> None:
    """Some samples in random order, each read by itself."""
    for i in np.random.default_rng(0).choice(SAMPLES, RANDOM, replace=False).tolist():
        for name in ("a", "u"):
            np.asarray(group[name][i])  # pyright: ignore


def figures() -> dict[str, float]:
    """Megabytes of float32 a second, medians over the rounds, and ratios within a round."""
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "random.zarr")
        random_store(url)
        group, pairs = zarr.open_group(url, mode="r"), open_pairs(url, "train")
        seconds = interleaved(
            {
                "Zarr alone": lambda: with_zarr_alone(group),
                "an epoch": lambda: an_epoch(pairs),
                "in memory": lambda: pairs.resident(),
                "one by one": lambda: one_by_one(group),
            },
            rounds=ROUNDS,
        )
        seconds["one by one"] = [s * SAMPLES / RANDOM for s in seconds["one by one"]]
        size = pairs.nbytes / 1e6
        speeds = {
            f"{name}, MB/s": round(size / statistics.median(s)) for name, s in seconds.items()
        }
        return {
            "store, MB": round(size),
            "shards shuffled together": pairs.window,
            **speeds,
            "speed of an epoch / Zarr alone": round(ratio(seconds, "Zarr alone", "an epoch"), 2),
            "speed of an epoch / one by one": round(ratio(seconds, "one by one", "an epoch"), 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    place = parser.parse_args().json
    found = figures()
    write_result("reading", {f"{N} x {N}, {SAMPLES} samples, batch {BATCH}": found})
    if place:
        place.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
