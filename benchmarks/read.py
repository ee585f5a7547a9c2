"""Reading for training: shuffled batches against plain Zarr, single random samples and a copy."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import zarr

from benchmarks.timing import Say, interleaved, ratio, rounded
from operators.data import Samples, open_pairs
from pdegen.domains import CellGrid
from pdegen.generation.generate import provenance
from pdegen.store.layout import Coordinate, Layout, Variable
from pdegen.store.writing import encoded, lay_out, seal, write_encoded
from pipelines.studies.cost import clock_of

_NAMES = ("a", "u")


@dataclass(frozen=True)
class Reading:
    """Figures of reading a store.

    Args:
        cells: Number of cells along each axis.
        samples, shard: Number of samples in the store, and in each shard.
        batch: Number of samples per batch.
        alone: Number of samples that are read one by one; their time is scaled to an epoch.
        rounds: Number of interleaved rounds.
    """

    cells: int = 141
    samples: int = 4096
    shard: int = 256
    batch: int = 8
    alone: int = 200
    rounds: int = 5

    def __call__(self, device: torch.device, say: Say, trace: Path | None = None) -> dict[str, Any]:
        say(f"read: {self.samples} samples, {self.cells} x {self.cells}")
        with tempfile.TemporaryDirectory() as folder:
            url = str(Path(folder) / "random.zarr")
            self.make(url)
            group, pairs = zarr.open_group(url, mode="r"), open_pairs(url, "train").to(device)
            arrays = [np.ones((self.samples, self.cells, self.cells), np.float32) for _ in _NAMES]
            seconds = interleaved(
                {
                    "Zarr alone": lambda: self.with_zarr_alone(group),
                    "an epoch": lambda: self.an_epoch(pairs),
                    "in memory": lambda: pairs.resident(),
                    "one by one": lambda: self.one_by_one(group),
                    "copy": lambda: [v.copy() for v in arrays],
                },
                self.rounds,
                clock=clock_of(device),
            )
            seconds["one by one"] = [s * self.samples / self.alone for s in seconds["one by one"]]
            size = pairs.reader.nbytes / 1e6
            return {
                "cells": f"{self.cells} x {self.cells}",
                "samples": self.samples,
                "batch": self.batch,
                "MB": rounded(size),
                "shards shuffled together": pairs.reader.window,
                **{f"{name}, MB/s": rounded(size / median(s)) for name, s in seconds.items()},
                "speed of an epoch / Zarr alone": ratio(seconds, "Zarr alone", "an epoch"),
                "speed of an epoch / one by one": ratio(seconds, "one by one", "an epoch"),
                "speed of an epoch / copy": ratio(seconds, "copy", "an epoch"),
            }

    def make(self, url: str) -> None:
        """Write a sealed store: a has two phases, which compress well; u is noise, which hardly
        does."""
        n, axes = self.cells, ("x", "y")
        store = lay_out(
            url,
            Layout(
                samples=self.samples,
                shard=self.shard,
                variables=tuple(Variable(name, axes, (n, n), "float32") for name in _NAMES),
                coordinates=tuple(
                    Coordinate(name, (name,), CellGrid(n).x, {"grid": "cell"}) for name in axes
                ),
                attributes={
                    "title": "random",
                    "equation": "none",
                    "provenance": provenance(),
                    "recipe": {"name": "random"},
                    "fingerprint": "0" * 64,
                    "splits": {"train": [0, self.samples]},
                },
            ),
        )
        rng = np.random.default_rng(0)
        for shard in range(store.shards):
            u = rng.standard_normal((len(store.shard_range(shard)), n, n), dtype=np.float32)
            a = np.where(np.cumsum(u, axis=1) > 0, np.float32(12), np.float32(3))
            write_encoded(store, *encoded(store, shard, {"a": a, "u": u}, {}))
        seal(store)

    def with_zarr_alone(self, group: zarr.Group) -> None:
        """Read all shards of both variables in order."""
        for start in range(0, self.samples, self.shard):
            for name in _NAMES:
                np.asarray(group[name][start : start + self.shard])  # pyright: ignore

    def an_epoch(self, pairs: Samples) -> None:
        """Read all batches in random order."""
        with closing(pairs.batches(seed=0, epoch=0, batch=self.batch)) as batches:
            assert sum(len(batch) for batch in batches) == self.samples // self.batch * self.batch

    def one_by_one(self, group: zarr.Group) -> None:
        """Read `alone` samples in random order, one by one."""
        chosen = np.random.default_rng(0).choice(self.samples, self.alone, replace=False)
        for i in chosen.tolist():
            for name in _NAMES:
                np.asarray(group[name][i])  # pyright: ignore
