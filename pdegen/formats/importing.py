"""Files of other projects -> a sealed store, shard by shard."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.equations.base import SampleError
from pdegen.formats.arrays import Contents, FormatError
from pdegen.formats.export_metadata import exported_plan, folder_contents
from pdegen.formats.import_options import ImportOptions
from pdegen.formats.opening import ImportedFile, merged, open_file, unpacked
from pdegen.formats.plan import Plan
from pdegen.formats.recognised import recognised_plan
from pdegen.formats.unrecognised import described_plan
from pdegen.generation.generate import Options, write
from pdegen.generation.job import Job
from pdegen.generation.recipe_arrays import provenance
from pdegen.store.arrays import Json
from pdegen.store.layout import Layout
from pdegen.store.reading import Store

# Enters every fingerprint: raised when a change of this code changes what is stored of a file.
ALGORITHM_VERSION = 2

_SHARD_BYTES = 2**24  # of one variable: a few shards fit into any memory
_LARGEST = 1e150  # the squares of such numbers, and their sums, are finite in float64


def import_files(
    files: Sequence[Path | str],
    url: str,
    import_options: ImportOptions = ImportOptions(),  # noqa: B008, it is frozen
    **options: Any,
) -> Store:
    """Write what files hold to a store: input `a` and target `u`, in the type of the file.

    Recognised files (`pdegen.formats.recognised`) and exports of `pdegen.formats.exporting` need no
    import_options. Several files of one kind are joined along the samples, in the order given.
    Numbers that no operator reads are kept exactly in a float: bool as float32, 0 and 1.

    Args:
        files: MATLAB 5 and 7.3, HDF5, .npy, .npz and .pt files, or a folder that was exported.
        url: Where to; a path, or a URL that fsspec knows.
        import_options: How to read unknown files; its `grid` and `splits` replace those of known
            files.
        options: The fields of `pdegen.generation.generate.Options`.

    Raises:
        FormatError: If a file cannot be read, is hostile or damaged, is not known and not
            declared, does not fit what is declared, or was exported and has changed; one line.
        SampleError: If a number of a sample is not finite, or larger than 1e150.
        StoreError, OSError, ...: As `pdegen.generation.generate.write`.
    """
    paths = [Path(file).absolute() for file in files]
    if not paths:
        raise FormatError("there are no files to import")
    # what cannot be read in slices from its file is unpacked here, for as long as it takes
    with tempfile.TemporaryDirectory(prefix="pdegen-import-") as name:
        folder = Path(name)
        contents, sources = _read(paths, folder)
        plan = _plan(contents, import_options)
        ready = plan.reading(unpacked(plan.arrays, folder))
        for field in ready.fields:
            field.check()
        job = ImportJob(ready, tuple(sources), _summary(contents, sources, plan))
        return write(job, url, Options(**options))


def _read(paths: list[Path], folder: Path) -> tuple[list[Contents], list[ImportedFile]]:
    if any(path.is_dir() for path in paths):
        if len(paths) > 1:
            raise FormatError("a folder is imported by itself")
        contents, files = folder_contents(paths[0])
        return [contents], [ImportedFile.of(file) for file in files]
    return merged([open_file(path, folder) for path in paths]), [
        ImportedFile.of(path) for path in paths
    ]


def _plan(contents: list[Contents], import_options: ImportOptions) -> Plan:
    plan = exported_plan(contents)
    if plan is None:
        return recognised_plan(contents, import_options) or described_plan(contents, import_options)
    if import_options != ImportOptions():
        raise FormatError(
            f"{contents[0].path.name} was exported by pdegen, and says itself how it is read"
        )
    return plan


def _summary(contents: list[Contents], sources: list[ImportedFile], plan: Plan) -> Json:
    """The attribute `imported`: what of which files is in the store, and what is not."""
    taken = {view.array.name for field in plan.fields for view in field.views}
    there = {name for one in contents for name in [*one.arrays, *one.unreadable]}
    return {
        "files": [
            {"name": one.path.name, "bytes": one.bytes, "sha256": one.sha256} for one in sources
        ],
        "format": contents[0].format,
        "variables": {
            field.name: {
                "key": field.views[0].array.name,
                "axes": list(field.views[0].axes),
                "frames": None if field.views[0].frames is None else list(field.views[0].frames),
                **field.views[0].said,
                "type": field.views[0].array.dtype.name,
            }
            for field in plan.fields
        },
        "left_out": sorted(there - taken),
        "source": plan.source,
    }


@dataclass(frozen=True)
class ImportJob(Job):
    """The store of files."""

    plan: Plan  # what is taken of which arrays
    sources: tuple[ImportedFile, ...]  # the files
    summary: Json  # the attribute `imported`

    @property
    def shard(self) -> int:
        """Samples of a shard."""
        largest = max(
            int(np.prod(f.shape)) * np.dtype(f.variable.dtype).itemsize for f in self.plan.fields
        )
        return max(1, min(_SHARD_BYTES // max(largest, 1), self.plan.samples))

    @property
    def fingerprint(self) -> str:
        content = {
            "files": [source.sha256 for source in self.sources],
            "variables": self.summary["variables"],
            "coordinates": [
                [one.name, hashlib.sha256(np.ascontiguousarray(one.values).tobytes()).hexdigest(),
                 one.attributes.get("grid")]
                for one in self.plan.coordinates
            ],
            "physics": self.plan.physics.attributes(),
            "splits": {name: list(ends) for name, ends in self.plan.splits.items()},
            "shard": self.shard,
            "algorithm": ALGORITHM_VERSION,
        }  # fmt: skip
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def check(self) -> None:
        for source in self.sources:
            source.check()

    def layout(self) -> Layout:
        plan = self.plan
        return Layout(
            samples=plan.samples,
            shard=self.shard,
            variables=tuple(field.variable for field in plan.fields),
            coordinates=plan.coordinates,
            attributes={
                "title": plan.title,
                "equation": plan.equation,
                "recipe": {"name": plan.name},
                **({"physics": said} if (said := plan.physics.attributes()) else {}),
                **plan.attributes,
                "splits": {name: list(ends) for name, ends in plan.splits.items()},
                "fingerprint": self.fingerprint,
                "imported": self.summary,
                "provenance": provenance(),
            },
            domain=plan.domain,
        )

    def compute(self, store: Store, samples: range) -> dict[str, np.ndarray]:
        self.check()
        values = {field.name: field.read(samples) for field in self.plan.fields}
        for name, array in values.items():
            rows = array.reshape(len(array), -1)
            sound = np.isfinite(rows).all(axis=1)
            if rows.dtype == np.float64:
                sound &= (np.abs(rows) <= _LARGEST).all(axis=1)
            sound |= np.isin(np.array(samples), list(self.plan.skipped))
            if not sound.all():
                row = int(np.flatnonzero(~sound)[0])
                finite = np.isfinite(rows[row]).all()
                what = f"larger than {_LARGEST:g}" if finite else "not finite"
                raise SampleError(samples[row], f"{name} is {what} in the file")
        return values

    def skipped(self, samples: range) -> Mapping[int, str]:
        return {i: why for i, why in self.plan.skipped.items() if i in samples}

    def difference(self, store: Store) -> str:
        there = store.metadata.imported
        names = ", ".join(source.path.name for source in self.sources)
        if there is None:
            return f"{store.url} was not imported from {names}"
        known = [one.sha256 for one in there.files]
        if known == [source.sha256 for source in self.sources]:
            return f"{store.url} was imported from {names} otherwise declared"
        return f"{store.url} was imported from other files than {names}"
