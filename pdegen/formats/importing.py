"""Import of files of other projects. Their arrays are written to a sealed store, shard by shard."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdegen.checks.declared import contradictions
from pdegen.equations.base import SampleError
from pdegen.formats.arrays import Array, Contents, FormatError
from pdegen.formats.export_metadata import exported_plan, folder_contents
from pdegen.formats.plan import (
    AXES,
    SPACE,
    FieldPlan,
    ImportedFile,
    ImportOptions,
    Plan,
    View,
    box,
    merged,
    numbers,
    open_file,
    split_sizes,
    unpacked,
)
from pdegen.formats.recognised import recognised_plan
from pdegen.generation.generate import Job, Options, provenance, write
from pdegen.store.format import Json, Physics
from pdegen.store.layout import Layout, positions, times
from pdegen.store.reading import Store


def described_plan(files: Sequence[Contents], options: ImportOptions) -> Plan:
    """The import plan of files whose arrays, grid and splits are described by the user.

    The axis of samples is the first one, or the last one if `options.samples` is "last". The other
    axes are those of space. If the target has one axis more than the input, the additional axis is
    that of times. `options.times` says where it is, if the shapes do not determine this. If an
    array has other axes, `options.input_axes` or `options.target_axes` names all its axes.

    Raises:
        FormatError: If an option is missing (the message lists the contents of the file), or does
            not fit the arrays.
    """
    required = {
        "--input": (options.input, "name of an array"),
        "--target": (options.target, "name of an array"),
        "--grid": (options.grid, "periodic, cell or nodal"),
        "--split": (options.splits, "NAME=SIZE, of train, validation and test"),
    }
    missing = [f"{name} ({help})" for name, (value, help) in required.items() if value is None]
    if missing:
        raise FormatError(f"{files[0].summary}: not a recognised file: give {', '.join(missing)}")
    assert options.input is not None
    assert options.target is not None
    assert options.grid is not None
    assert options.splits is not None
    inputs = [file.array(options.input) for file in files]
    targets = [file.array(options.target) for file in files]
    axes = _axes(inputs[0], targets[0], options)
    frames = (None, None)
    if options.input == options.target:
        count = inputs[0].shape[axes[0].index("time")]
        if count < 2:
            raise FormatError(f"{inputs[0].where} {inputs[0].shape} has a single time")
        frames = ((0, 1), (1, count))
    a, u = (
        FieldPlan(
            name,
            tuple(View(array, axes[i], frames[i]) for array in arrays),
            {"long_name": f"{arrays[0].name} of {files[0].path.name}", "role": role, "units": "1"},
        )
        for i, (name, arrays, role) in enumerate((("a", inputs, "input"), ("u", targets, "target")))
    )
    if a.space != u.space:
        raise FormatError(
            f"{inputs[0].where} {inputs[0].shape} and {targets[0].where} {targets[0].shape} are "
            "on different grids"
        )
    domain = box(options.grid, a.space, {})
    count = max(dict(zip(f.dims, f.shape, strict=True)).get("time", 0) for f in (a, u))
    first = 1 if options.input == options.target else 0  # the input is the frame 0
    boundary = {} if options.boundary is None else {"u": options.boundary}
    return Plan(
        name="imported",
        title=f"Imported from {', '.join(file.path.name for file in files)}",
        equation="not given",
        source="as declared",
        fields=(a, u),
        coordinates=(
            numbers(a.samples),
            *positions(domain),
            *((times(np.arange(first, first + count)),) if count else ()),
        ),
        splits=split_sizes(options.splits, a.samples),
        domain=domain,
        physics=Physics(boundary=boundary),
    )


def _axes(a: Array, u: Array, options: ImportOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the axes of the input and of the target."""
    same = a.name == u.name
    space = SPACE[: len(a.shape) - (2 if same else 1)]
    position = options.times or ("first" if same else _position_of_times(a, u, options))
    timed = ("time", *space) if position == "first" else (*space, "time")
    target = timed if same or len(u.shape) > len(a.shape) else space
    before, after = (("sample",), ()) if options.samples == "first" else ((), ("sample",))
    named = (
        options.input_axes or (*before, *(timed if same else space), *after),
        options.target_axes or (*before, *target, *after),
    )
    given = (("--input-axes", options.input_axes), ("--target-axes", options.target_axes))
    for array, axes, (option, words) in zip((a, u), named, given, strict=True):
        fits = len(set(axes)) == len(axes) == len(array.shape) and set(axes) <= set(AXES)
        if fits and "sample" in axes and set(SPACE) & set(axes):
            continue
        if words is not None:
            raise FormatError(
                f"{option} {','.join(words)}: {array.where} {array.shape} needs "
                f"{len(array.shape)} different names from {', '.join(AXES)}: sample, and at least "
                "one of x, y, z"
            )
        raise FormatError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: an input has samples and one to "
            "three axes of space, a target the same and possibly times; otherwise name the "
            f"axes, from {', '.join(AXES)}"
        )
    return named


def _position_of_times(a: Array, u: Array, options: ImportOptions) -> str:
    """The position of the axis of times, "first" or "last"."""
    if options.target_axes:
        return "first"
    of_sample = slice(1, None) if options.samples == "first" else slice(None, -1)
    space, timed = a.shape[of_sample], u.shape[of_sample]
    candidates = (("first", timed[1:]), ("last", timed[:-1]))
    fits = [position for position, shape in candidates if shape == space]
    if len(timed) == len(space) + 1 and len(fits) != 1:
        raise FormatError(
            f"{a.where} {a.shape} and {u.where} {u.shape}: say whether the times are first (after "
            "the samples) or last"
        )
    return fits[0] if fits else "first"


# Part of every fingerprint: raised when a change of this code changes the stored values.
ALGORITHM_VERSION = 2

_SHARD_BYTES = 2**24  # largest size of a shard of one variable
_LARGEST = 1e150  # squares of such numbers, and their sums, are finite in float64


def import_files(
    files: Sequence[Path | str],
    url: str,
    import_options: ImportOptions = ImportOptions(),  # noqa: B008, it is frozen
    recognised: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Store:
    """Write the arrays of files to a sealed store. The input is named `a` and the target `u`.
    Values keep the dtype that they have in the file.

    Recognised files (`pdegen.formats.recognised`) and exports of `pdegen.formats.exporting` need no
    options. Several files of the same kind are joined along the samples, in the given order. If
    operators cannot read a dtype, its values are converted to floats without rounding, such as bool
    to float32.

    Args:
        files: MATLAB 5 and 7.3, HDF5, .npy, .npz and .pt files, or an exported folder of .npy or
            Parquet files.
        url: Path or URL of the store.
        import_options: Description of the arrays in files that are not recognised. For recognised
            files, `grid` and `splits` replace the known ones.
        recognised: Called before anything is written with one line, which says as what the files
            were recognised and why. Not called for other files.
        options: The fields of `pdegen.generation.generate.Options`.

    Raises:
        FormatError: If a file cannot be read, is hostile or damaged, is neither recognised nor
            described, does not fit its description, or is a modified export. Also if the values of
            the first sample contradict its description. The message has one line.
        SampleError: If a value is not finite, is larger than 1e150, or contradicts the description.
        StoreError, OSError, ...: See `pdegen.generation.generate.write`.
    """
    paths = [Path(file).absolute() for file in files]
    if not paths:
        raise FormatError("there are no files to import")
    # arrays that cannot be read in slices from their file are unpacked to this folder
    with tempfile.TemporaryDirectory(prefix="pdegen-import-") as name:
        folder = Path(name)
        contents, sources = _read(paths, folder)
        plan, ready = _plan(contents, import_options, folder)
        for field in ready.fields:
            field.check()
        first = {name: values[None] for name, values in ready.sample(0).items()}
        for name, _, fault in contradictions(ready.physics, ready.domain, first):
            raise FormatError(f"{contents[0].path.name}: {name} of the first sample {fault}")
        job = ImportJob(ready, tuple(sources), _summary(contents, sources, plan))
        if plan.recognised_by:
            recognised(f"recognised as {plan.title}, by {plan.recognised_by}")
        return write(job, url, Options(**options))


def _read(paths: list[Path], folder: Path) -> tuple[list[Contents], list[ImportedFile]]:
    if any(path.is_dir() for path in paths):
        if len(paths) > 1:
            raise FormatError("a folder cannot be imported with other files")
        contents, files = folder_contents(paths[0], folder)
        return [contents], [ImportedFile.of(file) for file in files]
    return merged([open_file(path, folder) for path in paths]), [
        ImportedFile.of(path) for path in paths
    ]


def _plan(
    contents: list[Contents], import_options: ImportOptions, folder: Path
) -> tuple[Plan, Plan]:
    """The import plan of files, and the same plan that reads the unpacked arrays."""

    def ready(plan: Plan) -> tuple[Plan, Plan]:
        return plan, plan.reading(unpacked(plan.arrays, folder))

    plan = exported_plan(contents)
    if plan is not None:
        if import_options != ImportOptions():
            raise FormatError(
                f"{contents[0].path.name} was exported by pdegen: it is imported without options"
            )
        return ready(plan)
    # whether it is a published file is known before its splits are asked for
    published = recognised_plan(contents, replace(import_options, splits={"train": 1}))
    if published is None:
        return ready(described_plan(contents, import_options))
    arrays = unpacked(published.arrays, folder)
    fault = published.contradiction(published.reading(arrays).sample(0))
    if not fault:
        plan = recognised_plan(contents, import_options)
        assert plan is not None
        return plan, plan.reading(arrays)
    try:
        return ready(described_plan(contents, import_options))
    except FormatError as error:
        raise FormatError(
            f"{error} (its arrays have the names and sizes of {published.title}, but {fault})"
        ) from None


def _summary(contents: list[Contents], sources: list[ImportedFile], plan: Plan) -> Json:
    """The attribute `imported`."""
    taken = {view.array.name for field in plan.fields for view in field.views}
    names = {name for file in contents for name in [*file.arrays, *file.unreadable]}
    return {
        "files": [
            {"name": file.path.name, "bytes": file.bytes, "sha256": file.sha256} for file in sources
        ],
        "format": contents[0].format,
        "variables": {
            field.name: {
                "key": field.views[0].array.name,
                "axes": list(field.views[0].axes),
                "frames": None if field.views[0].frames is None else list(field.views[0].frames),
                **field.views[0].selection,
                "type": field.views[0].array.dtype.name,
            }
            for field in plan.fields
        },
        "left_out": sorted(names - taken),
        "source": plan.source,
        **({"recognised_by": plan.recognised_by} if plan.recognised_by else {}),
        **({"warning": plan.warning} if plan.warning else {}),
    }


@dataclass(frozen=True)
class ImportJob(Job):
    """The job that writes an imported store."""

    plan: Plan  # the arrays of each variable
    sources: tuple[ImportedFile, ...]  # the imported files
    summary: Json  # the attribute `imported`

    @property
    def shard(self) -> int:
        """Number of samples in a shard."""
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
                [c.name, hashlib.sha256(np.ascontiguousarray(c.values).tobytes()).hexdigest(),
                 c.attributes.get("grid")]
                for c in self.plan.coordinates
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
                **({"physics": physics} if (physics := plan.physics.attributes()) else {}),
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
                problem = f"larger than {_LARGEST:g}" if finite else "not finite"
                raise SampleError(samples[row], f"{name} is {problem} in the file")
        for name, row, fault in contradictions(self.plan.physics, self.plan.domain, values):
            raise SampleError(samples[row], f"{name} {fault}")
        return values

    def skipped(self, samples: range) -> Mapping[int, str]:
        return {i: why for i, why in self.plan.skipped.items() if i in samples}

    def difference(self, store: Store) -> str:
        imported = store.metadata.imported
        names = ", ".join(source.path.name for source in self.sources)
        if imported is None:
            return f"{store.url} was not imported from {names}"
        digests = [file.sha256 for file in imported.files]
        if digests == [source.sha256 for source in self.sources]:
            return f"{store.url} was imported from {names} with other options"
        return f"{store.url} was imported from other files than {names}"
