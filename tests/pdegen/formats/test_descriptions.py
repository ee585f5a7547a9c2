"""Every description of published files: lengths of axes, facts of joined files, options."""

import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from pdegen.domains import CellGrid
from pdegen.formats.arrays import Array, Contents, FormatError, Location
from pdegen.formats.described import described_plan
from pdegen.formats.importing import ImportJob, _summary
from pdegen.formats.plan import ImportOptions
from pdegen.formats.points import masked
from pdegen.formats.recognised import _DATASETS, Published, recognised_plan
from pdegen.formats.sandbox import ImportedFile
from tests.pdegen.formats.files import random

SMALL = ImportOptions(splits={"train": 1})
# lengths that descriptions do not state; those of Darcy's .pt files and of the square are alike
SIZES = {"sample": 3, "time": 5, "x": 16, "y": 16, "z": 16, "i": 8, "j": 7, "point": 4, "mode": 10,
         "angle": 6, "channel": 5}  # fmt: skip
# arrays that are no variables: their axes and values
BESIDE = {
    "navier-stokes-published": {"t": (("", "time"), np.arange(1.0, 6)[None])},
    "pdebench-1d": {
        "x-coordinate": (("x",), CellGrid(16).x),
        "t-coordinate": (("time",), np.linspace(0, 1, 5)),
    },
    "pdebench-darcy": {f"{axis}-coordinate": ((axis,), CellGrid(16).x) for axis in "xy"},
    "neuralop-burgers": {"visc": (("",), np.array([0.01]))},
    **{
        f"pdebench-{len(axes)}d-{kind}": {
            **{name.format(axis): ((axis,), CellGrid(16).x) for axis in axes},
            name.format("t"): (("time",), np.arange(5.0)),
        }
        for kind, name, sets in (
            ("cfd", "{}-coordinate", ("x", "xy", "xyz")),
            ("groups", "grid/{}", ("x", "xy")),
        )
        for axes in sets
    },
}
# names by which files with common names of arrays are recognised
FILES = {
    "navier-stokes-published": "NavierStokes_V1e-3.mat", "neuralop-darcy": "darcy_train_16.pt",
}  # fmt: skip
WELL = {
    "t0_fields/density": (("sample", "time", "x", "y"), np.zeros((3, 5, 16, 16))),
    "dimensions/time": (("time",), np.arange(5.0)),
    **{f"dimensions/{axis}": ((axis,), np.arange(16) / 16) for axis in "xy"},
}


def contents(folder: Path, arrays: dict[str, np.ndarray], **attributes: str | float) -> Contents:
    """Contents of a file that has these arrays."""
    path = folder / f"file{len(list(folder.iterdir()))}"
    found, start = {}, 0
    with path.open("wb") as file:
        for name, values in arrays.items():
            location = Location(path, start, "C", values.dtype)
            start += file.write(values.tobytes())
            file.flush()
            found[name] = Array(path, name, values.shape, values.dtype, location)
    return Contents(path, "test", found, {}, attributes)


def example(dataset: Published | None) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Arrays of the smallest file of a description, or of The Well, with their axes."""
    if dataset is None:
        return WELL
    sizes = {**SIZES, "": 1, **dataset.sizes}
    arrays = {}
    for entry in dataset.entries:
        dtype = bool if dataset.name == "neuralop-darcy" and entry.key == "x" else "u1"
        shape = [sizes[axis] for axis in entry.axes]
        for key in (entry.key, *entry.beside):
            arrays.setdefault(key, (entry.axes, np.zeros(shape, dtype)))
    return arrays | BESIDE.get(dataset.name, {})


DATASETS = pytest.mark.parametrize(
    "dataset", [*_DATASETS, None], ids=lambda one: one.name if one else "the-well"
)


def a_file(folder: Path, dataset: Published | None, arrays: dict[str, np.ndarray]) -> Contents:
    """Contents of a file of a description, or of The Well, with the name that it needs."""
    attributes = {} if dataset else {"boundary_conditions/x@bc_type": "PERIODIC"}
    file = contents(folder, arrays, **attributes)
    if dataset is not None and dataset.name.endswith("groups"):
        others = {name: (array, array) for name, array in file.arrays.items()}
        file = replace(file, groups=3, further=others)
    name = FILES.get(dataset.name if dataset else "")
    return file if name is None else replace(file, path=Path(shutil.copy(file.path, folder / name)))


def recognised(folder: Path, dataset: Published | None, arrays: dict[str, np.ndarray]) -> bool:
    """Whether a file of these arrays is one of the description."""
    try:
        plan = recognised_plan([a_file(folder, dataset, arrays)], SMALL)
    except FormatError:
        return False
    assert plan is None or plan.name == (dataset.name if dataset else "the-well")
    return plan is not None


@DATASETS
def test_an_array_longer_than_the_others_is_no_published_set(tmp_path, dataset):
    """Each axis of each array, longer by two: PDEBench has one time more than frames. An axis that
    is of this array alone, and whose length is not stated, may have any length."""
    described = example(dataset)
    arrays = {key: values for key, (_, values) in described.items()}
    assert recognised(tmp_path, dataset, arrays)
    owners: dict[str, set[str]] = {}
    for key, (axes, _) in described.items():
        for axis in axes:
            owners.setdefault(axis, set()).add(key)
    lengthened = 0
    for key, (axes, values) in described.items():
        for place, axis in enumerate(axes):
            width = [(0, 2 if k == place else 0) for k in range(values.ndim)]
            other = arrays | {key: np.pad(values, width, "edge")}
            stated = axis == "" or axis in (dataset.sizes if dataset else ())
            if key == "visc":  # a number
                continue
            shared = stated or len(owners[axis]) > 1
            assert recognised(tmp_path, dataset, other) != shared, (key, axis)
            lengthened += shared
    assert lengthened


@DATASETS
def test_a_missing_array_or_axis_is_no_published_set(tmp_path, dataset):
    described = example(dataset)
    arrays = {key: values for key, (_, values) in described.items()}
    optional = {entry.key for entry in dataset.entries if entry.optional} if dataset else set()
    for key, values in arrays.items():
        if key in {"t", "visc"} or key in optional:  # facts that a file may lack
            continue
        for other in ({}, {key: values[None]}, {key: values.reshape(-1)[0]}):
            changed = {name: v for name, v in arrays.items() if name != key} | other
            assert not recognised(tmp_path, dataset, changed), (key, other)


@pytest.mark.parametrize(
    ("dataset", "first", "second"),
    [
        ("navier-stokes-published", "NavierStokes_V1e-3", "NavierStokes_V1e-5"),
        ("pdebench-1d", "1D_Burgers_Sols_Nu0.01", "1D_Burgers_Sols_Nu0.1"),
        ("pdebench-1d", "1D_Advection_Sols_beta0.4", "1D_Burgers_Sols_Nu0.4"),
        ("pdebench-darcy", "2D_DarcyFlow_beta1.0", "2D_DarcyFlow_beta10.0"),
    ],
)
def test_files_of_different_parameters_are_not_joined(tmp_path, dataset, first, second):
    """The store would state the parameter of the first for all samples."""
    (described,) = [example(one) for one in _DATASETS if one.name == dataset]
    arrays = {key: values for key, (_, values) in described.items()}
    files = [
        replace(contents(tmp_path, arrays), path=tmp_path / f"{name}.hdf5")
        for name in (first, first, second)
    ]
    assert recognised_plan(files[:2], SMALL)
    with pytest.raises(FormatError, match="have different points, times or parameters"):
        recognised_plan(files[1:], SMALL)


# options


def fingerprint(files: list[Contents], options: ImportOptions) -> str:
    """Fingerprint of the store that an import with these options would write."""
    plan = recognised_plan(files, options) or described_plan(files, options)
    if options.mask is not None:
        plan, _ = masked(files[0], plan, plan, options.mask)
    sources = [ImportedFile.of(file.path) for file in files]
    return ImportJob(plan, tuple(sources), _summary(files, sources, plan)).fingerprint


CUBES = {key: random(8, 8, 8, 8, seed=seed) for seed, key in enumerate("pqr")}
CUBES["line"] = 2 * CellGrid(8).x
CUBES |= {key: random(8, 8, seed=seed) for seed, key in enumerate(("before", "after"))}
CUBES |= {key: random(8, 2, seed=seed) for seed, key in enumerate(("spots", "dots"))}
CUBES["corners"] = np.array([[0, 1, 2], [1, 2, 3]])
CUBES["rim"] = np.arange(8) > 5
CLOUD = ImportOptions("before", "after", "cloud", {"train": 4}, points="spots")
WINDOWS = ImportOptions("p", "p", "cell", {"train": 4}, coordinates={"x": "none"}, window=4)
# for each option: options, another value, and what the default means beside these options
OPTIONS = {
    "input": (ImportOptions("p", "q", "cell", {"train": 4}), "r", None),
    "target": (ImportOptions("p", "q", "cell", {"train": 4}), "r", None),
    "grid": (ImportOptions("p", "q", "cell", {"train": 4}), "nodal", None),
    "splits": (ImportOptions("p", "q", "cell", {"train": 4}), {"train": 4, "test": 1}, None),
    "samples": (ImportOptions("p", "q", "cell", {"train": 4}), "last", "first"),
    "times": (ImportOptions("p", "p", "cell", {"train": 4}), "last", "first"),
    "input_axes": (
        ImportOptions("p", "q", "cell", {"train": 4}),
        ("x", "sample", "y", "z"), ("sample", "x", "y", "z"),
    ),
    "target_axes": (
        ImportOptions("p", "q", "cell", {"train": 4}),
        ("x", "sample", "y", "z"), ("sample", "x", "y", "z"),
    ),
    "coordinates": (ImportOptions("p", "q", "cell", {"train": 4}), {"x": "line"}, {}),
    "lengths": (ImportOptions("p", "q", "cell", {"train": 4}), {"x": 2.0}, {"x": 1.0}),
    "moments": (
        ImportOptions("p", "p", "cell", {"train": 4}),
        (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0), None,
    ),
    "points": (CLOUD, "dots", None),
    "cells": (CLOUD, "corners", None),
    "edge": (CLOUD, "rim", None),
    "mask": (
        ImportOptions("before", "after", "cell", {"train": 4}, coordinates={"x": "none"}),
        "rim", None,
    ),
    "window": (WINDOWS, 3, None),
    "stride": (WINDOWS, 2, 4),
    "boundary": (ImportOptions("p", "q", "cell", {"train": 4}), 0.5, None),
}  # fmt: skip


@pytest.mark.parametrize("option", [field.name for field in fields(ImportOptions)])
def test_each_option_makes_another_fingerprint_and_its_default_the_same(tmp_path, option):
    options, other, default = OPTIONS[option]
    files = [contents(tmp_path, CUBES)]
    base = fingerprint(files, options)
    assert fingerprint(files, replace(options, **{option: other})) != base
    if default is not None:
        assert fingerprint(files, replace(options, **{option: default})) == base


@DATASETS
def test_options_of_a_recognised_file_replace_its_grid_and_splits(tmp_path, dataset):
    arrays = {key: values for key, (_, values) in example(dataset).items()}
    files = [a_file(tmp_path, dataset, arrays)]
    base = fingerprint(files, SMALL)
    assert fingerprint(files, replace(SMALL, splits={"train": 1, "test": 1})) != base
    if dataset and not dataset.grid:
        with pytest.raises(FormatError, match="not a grid: leave 'cell' out"):
            recognised_plan(files, replace(SMALL, grid="cell"))
        return
    own, other = (dataset.grid, "cell") if dataset else ("periodic", "cell")
    assert fingerprint(files, replace(SMALL, grid=own)) == base
    assert fingerprint(files, replace(SMALL, grid="nodal" if own == other else other)) != base
