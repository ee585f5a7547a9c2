"""Import of files of other projects. Their arrays are written to a sealed store, shard by shard."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pdegen.checks.check import contradictions
from pdegen.equations.base import SampleError
from pdegen.formats.arrays import (
    BLOCK,
    KINDS,
    MESH,
    NUMBERS,
    REFERENCES,
    SINGLE,
    Array,
    Contents,
    FormatError,
    Location,
    Packing,
    is_name,
    plain_attribute,
)
from pdegen.formats.described import NotDescribedError, described_plan, listed
from pdegen.formats.export_metadata import exported_plan, folder_contents
from pdegen.formats.plan import ImportOptions, Plan
from pdegen.formats.points import MISSING, axis_of, masked
from pdegen.formats.recognised import recognised_plan
from pdegen.formats.sandbox import ImportedFile, is_zarr, joined, merged, open_file, unpacked
from pdegen.generation.generate import Job, Options, provenance, write
from pdegen.store.format import Json
from pdegen.store.layout import Layout
from pdegen.store.reading import Store

if TYPE_CHECKING:
    import xarray as xr

# Part of every fingerprint: raised when a change of this code changes the stored values.
ALGORITHM_VERSION = 2

_SHARD_BYTES = 2**24  # largest size of a shard of one variable
_LARGEST = 1e150  # squares of such numbers, and their sums, are finite in float64


def import_files(
    files: Sequence[Path | str],
    url: str,
    import_options: ImportOptions = ImportOptions(),  # noqa: B008, it is frozen
    tell: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Store:
    """Write the arrays of files to a sealed store. The input is named `a` and the target `u`.
    Values keep the dtype that they have in the file.

    Recognised files (`pdegen.formats.recognised`) and exports of `pdegen.formats.exporting` need no
    options. Several files of the same kind are joined along the samples, in the given order. If
    operators cannot read a dtype, its values are converted to floats without rounding, such as bool
    to float32.

    Args:
        files: MATLAB, HDF5, netCDF, .npy, .npz and .pt files, meshes (VTK, VTU, XDMF, Gmsh), Zarr
            groups, or an exported folder of .npy or Parquet files.
        url: Path or URL of the store.
        import_options: Description of the arrays in files that are not recognised. For recognised
            files, `grid` and `splits` replace the known ones.
        tell: Called with one line before anything is written. It says as what the files were
            recognised and why, or which positions and times are assumed.
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
        contents, sources = _read(paths, folder, import_options.samples)
        plan, ready = _plan(contents, import_options, folder)
        return _written(contents, sources, plan, ready, url, tell, options)


def from_xarray(
    dataset: xr.Dataset,
    out: str | PathLike[str],
    *,
    input: str | Sequence[str],
    target: str | Sequence[str],
    grid: str,
    splits: Mapping[str, int],
    sample: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
    describe: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> str:
    """Write variables of an xarray dataset to a sealed store, by the code that imports files.

    The dataset may be in memory, opened from any file that xarray reads, or computed by Dask block
    by block. Dimensions have the names of axes (time, channel, x, y, z, or others for these such as
    lon), and the coordinates along them are the positions and times. Units are kept, and values
    that the attributes pack are unpacked.

    Args:
        dataset: The dataset.
        out: Path or URL of the store.
        input: Names of the variables of the input. Several are channels.
        target: Names of the variables of the target. The same as `input` takes the first time as
            input and the later ones as target.
        grid: "periodic", "cell" or "nodal", or one of these for each axis: "periodic,nodal". Or
            "curvilinear" or "cloud".
        splits: Number of samples of "train", "validation" and "test".
        sample: Name of the dimension of samples. None for one whose name stands for it, such as
            run or member; without any, the dataset is a single trajectory.
        tell: See `import_files`.
        describe: Further fields of `pdegen.formats.plan.ImportOptions`, such as window=10.
        options: The fields of `pdegen.generation.generate.Options`.

    Returns:
        Path or URL of the store.

    Raises:
        FormatError: If a variable is absent or not of numbers, or as for `import_files`.
        StoreError, OSError, ...: See `pdegen.generation.generate.write`.

    >>> import tempfile
    >>> import xarray as xr
    >>> u = xr.DataArray(np.eye(8), dims=("run", "x"), coords={"x": np.arange(8) / 4})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     url = from_xarray(
    ...         xr.Dataset({"a": u, "u": u + 1}), f"{folder}/own.zarr", input="a", target="u",
    ...         sample="run", grid="periodic", splits={"train": 6, "test": 2},
    ...     )
    ...     xr.open_zarr(url).x.values[-1]
    np.float64(1.75)
    """
    names = [(key,) if isinstance(key, str) else tuple(key) for key in (input, target)]
    if sample is None:
        sample = next((str(d) for d in dataset.dims if axis_of(str(d)) == "sample"), None)
    known = {field.name for field in fields(ImportOptions)} - {"input", "target", "grid", "splits"}
    if unknown := {*describe} - known | {*describe} & {"samples"}:
        raise FormatError(
            f"describe has no key {min(unknown)}: it takes {', '.join(sorted(known))}"
        )
    described = ImportOptions(
        *names, grid=grid, splits=splits, samples="none" if sample is None else "first",
        **describe,
    )  # fmt: skip
    further = {described.points, described.cells, described.edge, described.mask}
    further |= {*described.coordinates.values()}
    further -= {None, MISSING, "none"}
    wanted = dict.fromkeys([*names[0], *names[1], *sorted(map(str, further))])
    for key in wanted:
        if key not in dataset.variables:
            known = ", ".join(map(str, dataset.variables))
            raise FormatError(f"the dataset has no variable {key!r}: it has {known}")
    if sample is not None and any(sample not in dataset[key].dims for key in names[0] + names[1]):
        raise FormatError(f"a variable lacks the dimension {sample!r} of the samples")
    with tempfile.TemporaryDirectory(prefix="pdegen-import-") as name:
        contents = _dumped(dataset, [*wanted], sample, Path(name))
        plan = described_plan([contents], described)
        if described.mask is not None:
            plan, _ = masked(contents, plan, plan, described.mask)
        files = [array.location.file for array in contents.arrays.values() if array.location]
        sources = [ImportedFile.of(file) for file in (*files, Path(name, "attributes.json"))]
        return _written([contents], sources, plan, plan, fspath(out), tell, options).url


def _dumped(
    dataset: xr.Dataset, wanted: Sequence[str], sample: str | None, folder: Path
) -> Contents:
    """Write the wanted variables and all coordinates to files. The dimension `sample` is the first
    one. Raises FormatError if a wanted variable is not of numbers."""
    from xarray.conventions import encode_cf_variable

    arrays: dict[str, Array] = {}
    attributes: dict[str, str | float | list[float]] = {}
    dims: dict[str, tuple[str, ...]] = {}
    levels = [key for key, index in dataset.indexes.items() if index.nlevels > 1]
    dataset = dataset.reset_index([key for key in levels if key in dataset.dims])
    names = [key for key in dataset.coords if isinstance(key, str) and is_name(key)]
    coordinates = [key for key in names if key != sample and key not in levels]
    for number, key in enumerate(dict.fromkeys([*wanted, *coordinates])):
        variable = dataset[key].variable
        if variable.dtype.kind in "mMO":  # dates and durations become numbers with units
            variable = encode_cf_variable(variable)
        if variable.dtype.kind not in KINDS:
            if key in wanted:
                raise FormatError(f"{key} is of type {variable.dtype}: {NUMBERS}")
            continue
        if sample in variable.dims:
            variable = variable.transpose(sample, ...)
        arrays[key] = _in_blocks(folder / f"{number}.raw", key, variable)
        dims[key] = tuple("sample" if d == sample else str(d) for d in variable.dims)
        # valid_range alone is of values that xarray has unpacked
        packed = {*variable.attrs} & {"scale_factor", "add_offset", "_FillValue", "missing_value"}
        for attribute, value in variable.attrs.items():
            if not packed and str(attribute).startswith("valid_"):
                continue
            if (plain := plain_attribute(value)) is not None:
                attributes[f"{key}@{attribute}"] = plain
    (folder / "attributes.json").write_text(json.dumps(attributes, sort_keys=True), "utf-8")
    contents = Contents(folder / "dataset", "xarray", arrays, attributes=attributes, dims=dims)
    return contents.decoded


def _in_blocks(file: Path, key: str, variable: xr.Variable) -> Array:
    """Write a variable of xarray to a file, in blocks along its first dimension."""
    native = variable.dtype.newbyteorder("=")
    row = math.prod(variable.shape[1:]) * native.itemsize
    rows = max(1, BLOCK // max(row, 1))
    blocks = range(0, variable.shape[0], rows) if variable.shape else [None]
    with file.open("wb") as out:
        for start in blocks:
            block = variable if start is None else variable[start : start + rows]
            np.ascontiguousarray(block.values, native).tofile(out)
    return Array(
        file.with_name("dataset"), key, variable.shape, native, Location(file, 0, "C", native)
    )


def _written(
    contents: list[Contents], sources: Sequence[ImportedFile], plan: Plan, ready: Plan, url: str,
    tell: Callable[[str], None], options: Mapping[str, Any],
) -> Store:  # fmt: skip
    """Check a plan, say what was recognised or assumed, and write the store.

    Args:
        contents: The contents of the files.
        sources: The files.
        plan: The plan.
        ready: The same plan, which reads unpacked arrays.
        url: Path or URL of the store.
        tell: See `import_files`.
        options: The fields of `pdegen.generation.generate.Options`.
    """
    for field in ready.fields:
        field.check()
    job = ImportJob(ready, tuple(sources), _summary(contents, sources, plan))
    if plan.recognised_by:
        tell(
            f"recognised as {plan.title}, by {plan.recognised_by}; to describe it yourself, give "
            "--input and --target"
        )
    if plan.positions_text:
        tell(plan.positions_text)
    if not options.get("skip_failed"):
        try:  # before anything is written
            job.values(range(1))
        except SampleError as error:
            raise FormatError(f"{contents[0].path.name}: {error}") from None
    return write(job, url, Options(**options))


def listing(paths: Sequence[Path | str]) -> list[str]:
    """The contents of the first file, line by line, and the command that imports the files. See
    `pdegen.formats.described.listed`.

    Raises:
        FormatError: If a file cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="pdegen-import-") as name:
        absolute = [Path(path).absolute() for path in paths]
        (file, *others), _ = _read(absolute, Path(name), "first")
        shapes = {(array.shape, array.dtype) for array in file.arrays.values()}
        one_each = len(absolute) > 2 and file.format in SINGLE and len(shapes) == 1
        lines = others and all(len(array.shape) < 2 for array in file.arrays.values())
        if one_each or lines:
            (file,), _ = _read(absolute, Path(name), "files")  # each file may be a sample
        arrays: dict[str, Array] = {}
        unreadable = dict(file.unreadable)
        for key, array in file.arrays.items():
            try:
                arrays[key] = unpacked([array], Path(name))[array]
            except FormatError as error:
                unreadable[key] = str(error).removeprefix(f"{array.where} ")
        file = replace(file, unreadable=unreadable)
        return listed(file, arrays, [shlex.quote(str(path)) for path in paths])


def _read(
    paths: list[Path], folder: Path, samples: str
) -> tuple[list[Contents], list[ImportedFile]]:
    if any(path.is_dir() and not is_zarr(path) for path in paths):
        if len(paths) > 1:
            raise FormatError("a folder cannot be imported with other files")
        contents, files = folder_contents(paths[0], folder)
        return [contents], [ImportedFile.of(file) for file in files]
    contents = [open_file(path, folder) for path in paths]
    if len({path.resolve() for path in paths}) < len(paths):
        raise FormatError("a file is given twice: its samples would be in two splits")
    by_file = samples == "files" or contents[0].format == MESH
    beside = [
        file.path.parent / name
        for file in contents
        for name in str(file.attributes.get(REFERENCES, "")).split()
    ]
    contents = [joined(contents)] if by_file else merged(contents)
    return contents, [ImportedFile.of(path) for path in [*paths, *beside]]


def _plan(
    contents: list[Contents], import_options: ImportOptions, folder: Path
) -> tuple[Plan, Plan]:
    """The import plan of files, and the same plan that reads the unpacked arrays."""

    def ready(plan: Plan) -> tuple[Plan, Plan]:
        read = plan.reading(unpacked(plan.arrays, folder))
        if import_options.mask is None:
            return plan, read
        return masked(contents[0], plan, read, import_options.mask)

    plan = exported_plan(contents)
    if plan is not None:
        if not import_options.is_default:
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
    except NotDescribedError as error:
        raise NotDescribedError(
            f"{error} (its arrays have the names and sizes of {published.title}, but {fault})"
        ) from None


def _summary(contents: list[Contents], sources: Sequence[ImportedFile], plan: Plan) -> Json:
    """The attribute `imported`."""
    taken = {array.name for array in plan.arrays}
    taken |= {name for file in contents for name, a in file.arrays.items() if a.name in taken}
    taken |= {*plan.position_arrays}
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
        **({"positions": plan.positions_text} if plan.positions_text else {}),
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
        return self.values(samples)

    def values(self, samples: range) -> dict[str, np.ndarray]:
        """The values of samples. Raises SampleError if they are not finite, are too large, or
        contradict the declared physics."""
        values = {field.name: field.read(samples) for field in self.plan.fields}
        for name, array in values.items():
            rows = array.reshape(len(array), -1)
            sound = np.isfinite(rows).all(axis=1)
            if rows.dtype == np.float64:
                sound &= (np.abs(rows) <= _LARGEST).all(axis=1)
            sound |= np.isin(np.array(samples), list(self.plan.skipped))
            if not sound.all():
                row = int(np.flatnonzero(~sound)[0])
                problem = "not finite"
                if np.isfinite(rows[row]).all():
                    problem = f"larger than {_LARGEST:g}"
                elif (packing := self._packing(name)) is not None:
                    problem = f"missing, or not finite, by {packing.words}"
                raise SampleError(samples[row], f"{name} is {problem} in the file")
        for name, row, fault in contradictions(self.plan.physics, self.plan.domain, values):
            raise SampleError(samples[row], f"{name} {fault}")
        return values

    def _packing(self, name: str) -> Packing | None:
        (field,) = [field for field in self.plan.fields if field.name == name]
        return field.views[0].array.packing

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
