"""Small stores for tests, queries and damages of stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zarr.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from pdegen.domains import Domain, PeriodicGrid
from pdegen.equations.base import SampleError
from pdegen.generation.generate import Job, RecipeJob
from pdegen.generation.verify import verify
from pdegen.store.format import Json, sha256, short_digest
from pdegen.store.layout import Coordinate, Layout, Variable
from pdegen.store.reading import Record, Seal, Store, seal_in
from pdegen.store.writing import encoded, lay_out, seal, write_encoded


def faults(store: Store | str) -> list[str]:
    """Faults found by verification."""
    url = store if isinstance(store, str) else store.url
    return [str(fault) for fault in verify(url).faults]


def with_attributes(store: Store, **changed: Any) -> Store:
    """The store after its attributes were changed behind its back."""
    path = Path(store.url) / "zarr.json"
    content = json.loads(path.read_text("utf-8"))
    content["attributes"] |= changed
    path.write_text(json.dumps(content, indent=2), "utf-8")
    return Store(store.url)


def write_shard(
    store: Store, shard: int, values: Mapping[str, Any], skipped: Mapping[int, str] | None = None
) -> Record:
    """Write values to a shard of a store that is laid out. Returns the record."""
    objects, record = encoded(store, shard, values, skipped or {})
    write_encoded(store, objects, record)
    return record


def sealed_store(
    url: str | Path,
    values: Mapping[str, Any],
    variables: Iterable[Variable],
    coordinates: Iterable[Coordinate],
    splits: Mapping[str, list[int]],
    *,
    shard: int | None = None,
    domain: Domain | None = None,
    lost: Iterable[int] = (),
    title: str = "by hand",
    equation: str = "none",
    recipe: Json = {"name": "by-hand", "problem": {}},  # noqa: B006, it is only read
    fingerprint: str = "0" * 64,
    physics: Json | None = None,
) -> str:
    """The URL of a sealed store of these values.

    Args:
        splits: First sample and end of each split.
        shard: Samples of a shard; by default all are in one.
        lost: Numbers of samples that were skipped.
        title, equation, recipe, fingerprint, physics: Attributes of the root.
    """
    samples = len(next(iter(values.values())))
    about = {
        "title": title,
        "equation": equation,
        "provenance": {"pdegen": "0"},
        "recipe": recipe,
        "fingerprint": fingerprint,
        "splits": dict(splits),
        **({"physics": physics} if physics else {}),
    }
    layout = Layout(
        samples, shard or samples, tuple(variables), tuple(coordinates), about,
        domain=domain,
    )  # fmt: skip
    store, skipped = lay_out(str(url), layout), {*lost}
    for number in range(store.shards):
        chosen = store.shard_range(number)
        part = {name: array[chosen.start : chosen.stop] for name, array in values.items()}
        write_shard(store, number, part, {i: "by hand" for i in chosen if i in skipped})
    seal(store)
    return store.url


def two_input_store(folder: Path, samples: int = 48, points: int = 64) -> str:
    """u = u0 + 2 v on a circle, and a second target p = u0; two thirds are for training."""
    u0, v = np.random.default_rng(0).standard_normal((2, samples, points)).astype(np.float32)
    roles = {"u0": "input", "v": "input", "u": "target", "p": "target"}
    ends = [0, samples * 2 // 3, samples * 5 // 6, samples]
    return sealed_store(
        folder,
        {"u0": u0, "v": v, "u": u0 + 2 * v, "p": u0},
        [Variable(n, ("x",), (points,), "float32", {"role": role}) for n, role in roles.items()],
        [Coordinate("x", ("x",), PeriodicGrid(points).x, {"grid": "periodic"})],
        dict(zip(("train", "validation", "test"), map(list, pairwise(ends)), strict=True)),
        title="two inputs",
        equation="u = u0 + 2 v",
        recipe={"name": "two-inputs", "problem": {}},
    )


def objects_of(store: Store | str | Path) -> dict[str, bytes]:
    """Every byte of a store on disk except `log/`, by keys."""
    root = Path(store.url if isinstance(store, Store) else store)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.parent != root / "log"
    }


def resealed(store: Store) -> Store:
    """The store after its seal was made that of what is there now."""
    store = Store(store.url)
    objects = {key: store.objects.read(key) for key in seal_in(store.objects).objects}
    records = [store.objects.read(Record.key(shard)) for shard in range(store.shards)]
    marks = "".join(map(short_digest, records))
    seal = Seal.of(objects, sha256(b"".join(records)), marks)
    store.objects.write(Seal.KEY, seal.encode())
    return store


def unseal(store: Store) -> Store:
    """Open a sealed store for writing again, behind its back."""
    return with_attributes(store, sealed=False)


def in_memory(objects: dict[str, bytes]) -> MemoryStore:
    """Bytes by keys as Zarr reads them."""
    return MemoryStore({key: Buffer.from_bytes(data) for key, data in objects.items()})


def contents(memory: MemoryStore) -> dict[str, bytes]:
    """Objects that Zarr has written to memory, by key."""
    return {key: buffer.to_bytes() for key, buffer in memory._store_dict.items()}


class Interrupt(BaseException):
    """Like Ctrl-C: no error."""


def failing(patch: pytest.MonkeyPatch, *failed: int) -> None:
    """Samples with these numbers cannot be computed."""
    compute = RecipeJob.compute

    def computed(self: RecipeJob, store: Store, samples: range) -> Any:
        for sample in failed:
            if sample in samples:
                raise SampleError(sample, "it does not converge")
        return compute(self, store, samples)

    patch.setattr(RecipeJob, "compute", computed)


@contextmanager
def interrupted(job: type[Job], sample: int) -> Iterator[None]:
    """Shards from that of this sample on are interrupted, and so is the whole."""
    compute = job.compute

    def interrupted(self: Job, store: Store, samples: range) -> Any:
        if samples.stop > sample:
            raise Interrupt
        return compute(self, store, samples)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupt):  # noqa: PT012
        patch.setattr(job, "compute", interrupted)
        yield
