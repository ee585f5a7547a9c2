"""Cost of flushing and checking bytes: `python -m benchmarks.digests [--json FILE]`.

Writing: a job of `burgers-r10`, against the same job without flushes to the disk and without
rereading the shards before the seal. Reading: the first epoch of a process, which compares every
shard with its record, against later epochs and against a training epoch on the same samples.
Variants are interleaved; figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from unittest.mock import patch

import torch

from operators.data import open_pairs
from operators.models.galerkin import GalerkinTransformer
from pdegen.generation import generate as generating
from pdegen.generation.generate import generate
from pdegen.recipe import load_recipe
from pdegen.store.reading import verified_shards

_unsound = generating._unsound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = {**writing(arguments.rounds), **reading(arguments.rounds)}
    for name, value in figures.items():
        print(f"{name}: {value:.4g}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def writing(rounds: int) -> dict[str, float]:
    """Seconds of whole jobs of `burgers-r10`, on a disk below the working directory."""
    recipe = load_recipe("burgers-r10")

    def job() -> None:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            generate(recipe, f"{folder}/store.zarr")

    def bare() -> None:
        with (
            patch.object(os, "fsync", lambda descriptor: None),
            patch.object(generating, "_unsound", _first_time(_unsound)),
        ):
            job()

    seconds = in_turns({"as it is": job, "bare": bare}, rounds)
    return {
        "burgers-r10, seconds": seconds["as it is"],
        "burgers-r10 without flushes and second reading, seconds": seconds["bare"],
        "writing, as it is / without": seconds["as it is"] / seconds["bare"],
    }


def _first_time(check: Callable) -> Callable:
    """`check` for the first call on a store; later calls return no shards without reading."""
    seen = set[str]()

    def once(store, job, workers, shards=None):
        if store.url in seen:
            return []
        seen.add(store.url)
        return check(store, job, workers, shards)

    return once


def reading(rounds: int) -> dict[str, float]:
    """Seconds of epochs over the training samples of `burgers-r10` on 8192 points."""
    with tempfile.TemporaryDirectory() as folder:
        url = generate(load_recipe("burgers-r10"), f"{folder}/store.zarr").url

        def epoch(resolution: int | None = None) -> None:
            with closing(open_pairs(url, "train", resolution).batches(0, 0, 8)) as batches:
                for _ in batches:
                    pass

        def first(resolution: int | None = None) -> None:
            verified_shards().clear()
            epoch(resolution)

        figures = dict[str, float]()
        seconds = in_turns({"first": first, "later": epoch}, rounds)
        checked = max(seconds["first"] - seconds["later"], 0.0)
        figures["epoch of reading, first / later"] = seconds["first"] / seconds["later"]
        figures["comparing all shards with their records, seconds"] = checked
        for n in (512, 2048):
            trained = training_epoch(url, n)
            figures[f"training epoch at n = {n}, seconds"] = trained
            figures[f"comparing / training epoch at n = {n}"] = checked / trained
        return figures


def training_epoch(url: str, n: int) -> float:
    """Seconds of an epoch of the published Galerkin Transformer, extrapolated from 8 steps."""
    pairs, model = open_pairs(url, "train", n), GalerkinTransformer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = []
    with closing(pairs.batches(0, 0, 8)) as batches:
        for number, batch in enumerate(batches):
            start = time.perf_counter()
            optimizer.zero_grad()
            (model(batch.a, pairs.points) - batch.u).square().mean().backward()
            optimizer.step()
            steps.append(time.perf_counter() - start)
            if number == 7:
                break
    return median(steps) * (len(pairs) // 8)


def in_turns(variants: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each variant, after a warm-up round."""
    seconds = {name: list[float]() for name in variants}
    for number in range(rounds + 1):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}


if __name__ == "__main__":
    main()
