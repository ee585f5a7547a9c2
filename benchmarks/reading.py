"""Cost of reading, part by part, against h5py; sizes and speeds of codecs.

    python -m benchmarks.reading [--rounds 5] [--json FILE]

Samples of `burgers-r10` (8192 points) and fields of `darcy-421` are stored with every codec and as
contiguous HDF5 datasets. Figures are medians of processor seconds of all threads; variants are
interleaved, and files are in the page cache. "first epoch" compares each shard with its recorded
SHA-256; "epoch" reads the store again. Both give shuffled batches of 8, as in training. "h5py"
reads all training samples into memory that it keeps, and gives shuffled batches of 8 without a
check; "h5py, by batch" reads each of these batches from the file; "h5py, in order" reads 128
samples at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median

import h5py
import numpy as np
from google_crc32c import value as crc32c

from operators.data import Samples, open_pairs
from operators.training.step import keep_memory
from pdegen.generation.generate import layout
from pdegen.recipe import Recipe, load_recipe
from pdegen.store.reading import Store, decode, index_bytes, spans, verified_shards
from pdegen.store.writing import encoded, lay_out, seal, write_encoded

CODECS = ("lz4", "zstd", "none")
_BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    keep_memory()  # as in training: fresh pages cost more than reading into them
    cases = {"burgers-r10": (4096, 128), "darcy-421": (256, 32)}
    figures = {}
    for name, (samples, solved) in cases.items():
        recipe = load_recipe(name).with_overrides({"samples": samples})
        figures[name] = compared(recipe, solved, options.rounds)
        print(f"{name}, {samples} samples, {figures[name]['MB']} MB")
        for what, value in figures[name].items():
            print(f"  {what}: {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def compared(recipe: Recipe, solved: int, rounds: int) -> dict[str, object]:
    """Sizes and processor seconds; `solved` samples are solved and repeated to fill the store."""
    samples_of_recipe = recipe.problem.compute(recipe.seed, range(solved), None)
    with tempfile.TemporaryDirectory() as folder:
        stores = {codec: _stored(recipe, codec, samples_of_recipe, folder) for codec in CODECS}
        writing = {
            f"write {codec}": _writes(store, samples_of_recipe) for codec, store in stores.items()
        }
        pairs = {codec: open_pairs(store.url, "train") for codec, store in stores.items()}
        reading = _with_h5py(stores["lz4"], folder, len(pairs["lz4"]))
        for codec, samples in pairs.items():
            reading |= {f"first epoch {codec}": _first(samples), f"epoch {codec}": _epoch(samples)}
        parts = {f"{what} {codec}": part for codec, store in stores.items()
                 for what, part in _parts(store, pairs[codec]).items()}  # fmt: skip
        seconds = processor_seconds({**writing, **reading, **parts}, rounds)
        raw = sum(stores["lz4"].array(name).nbytes for name in ("a", "u"))
        size = {codec: _bytes(store) for codec, store in stores.items()}
    return {
        "MB": round(raw / 1e6),
        **{f"size, {codec}": round(size[codec] / raw, 3) for codec in CODECS},
        **{f"{what}, s": round(value, 4) for what, value in seconds.items()},
        **{
            f"{what} {codec} / h5py": round(seconds[f"{what} {codec}"] / seconds["h5py"], 2)
            for what in ("epoch", "first epoch")
            for codec in CODECS
        },
    }


def processor_seconds(jobs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median processor seconds over interleaved rounds, after a warm-up call of each job."""
    seconds = {name: list[float]() for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            seconds[name] += [time.process_time() - start] if number else []
    return {name: median(times) for name, times in seconds.items()}


def _stored(
    recipe: Recipe, codec: str, samples_of_recipe: Mapping[str, np.ndarray], folder: str
) -> Store:
    """A sealed store that repeats the samples."""
    store = lay_out(f"{folder}/{codec}", layout(recipe.with_overrides({"codec": codec})))
    for shard in range(store.shards):
        write_encoded(
            store,
            *encoded(store, shard, _repeated(samples_of_recipe, store.shard_range(shard)), {}),
        )
    seal(store)
    return store


def _repeated(samples_of_recipe: Mapping[str, np.ndarray], samples: range) -> dict[str, np.ndarray]:
    return {
        name: v[np.arange(samples.start, samples.stop) % len(v)]
        for name, v in samples_of_recipe.items()
    }


def _writes(store: Store, samples_of_recipe: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """Function that encodes all shards with their records, without writing to the disk."""
    shards = [
        _repeated(samples_of_recipe, store.shard_range(shard)) for shard in range(store.shards)
    ]
    return lambda: [encoded(store, shard, values, {}) for shard, values in enumerate(shards)]


def _with_h5py(store: Store, folder: str, samples: int) -> dict[str, Callable[[], object]]:
    with h5py.File(f"{folder}/plain.h5", "w") as file:
        for name in ("a", "u"):
            file[name] = np.asarray(store.values(name)[:samples])
    order = np.random.default_rng(0).permutation(samples)

    def variables() -> Iterator[h5py.Dataset]:
        with h5py.File(f"{folder}/plain.h5") as file:
            for data in (file["a"], file["u"]):
                assert isinstance(data, h5py.Dataset)
                yield data

    values = np.ones((samples, *store.array("a").shape[1:]), np.float32)

    def whole() -> None:
        for data in variables():
            data.read_direct(values)
            for k in range(0, samples, _BATCH):
                _ = values[order[k : k + _BATCH]]

    def by_batch() -> None:
        for data in variables():
            for k in range(0, samples, _BATCH):
                _ = data[np.sort(order[k : k + _BATCH])]

    def in_order() -> None:
        for data in variables():
            for start in range(0, samples, 128):
                _ = data[start : start + 128]

    return {"h5py": whole, "h5py, by batch": by_batch, "h5py, in order": in_order}


def _epoch(pairs: Samples) -> Callable[[], object]:
    def read() -> None:
        with closing(pairs.batches(seed=0, epoch=0, batch=_BATCH)) as batches:
            for _ in batches:
                pass

    return read


def _first(pairs: Samples) -> Callable[[], object]:
    def read() -> None:
        verified_shards().clear()
        _epoch(pairs)()

    return read


def _parts(store: Store, pairs: Samples) -> dict[str, Callable[[], object]]:
    """The parts of an epoch as functions, each on the objects of all shards."""
    keys = [store.key(name, shard) for name in ("a", "u") for shard in range(store.shards)]
    paths = [Path(store.url) / key for key in keys]
    whole = [path.read_bytes() for path in paths]
    arrays = [store.array(name) for name in ("a", "u") for _ in range(store.shards)]
    outs = np.ones((len(pairs) // _BATCH * _BATCH, *pairs.reader.a.shape), np.float32)
    order = np.random.default_rng(0).permutation(len(outs))
    out = {array.name: np.empty(array.chunk, array.dtype) for array in arrays}

    def decompress() -> None:
        for array, data in zip(arrays, whole, strict=True):
            stored = np.frombuffer(data, np.uint8)
            for start, stop in filter(None, spans(array, data[-index_bytes(array) :])):
                decode(array, stored[start:stop], out[array.name], checked=True)

    return {
        "part: files": lambda: [path.read_bytes() for path in paths],
        "part: SHA-256": lambda: [hashlib.sha256(data).digest() for data in whole],
        "part: CRC-32C": lambda: [crc32c(data) for data in whole],
        "part: decompression": decompress,
        "part: finite values": lambda: [np.isfinite(outs).all() for _ in range(2)],
        "part: batches": lambda: [outs[order[k : k + _BATCH]] for _ in range(2)
                                  for k in range(0, len(outs), _BATCH)],
    }  # fmt: skip


def _bytes(store: Store) -> int:
    """Bytes of the stored objects of a and u."""
    return sum(
        (Path(store.url) / store.key(name, shard)).stat().st_size
        for name in ("a", "u")
        for shard in range(store.shards)
    )


if __name__ == "__main__":
    main()
