"""Views, fields and plans: which values are read, in which order, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from pdegen.domains import Box, CellGrid, NodalGrid, PeriodicGrid
from pdegen.formats import arrays
from pdegen.formats.arrays import Array, Digest, FormatError
from pdegen.formats.described import described_plan
from pdegen.formats.importing import ImportJob, _summary
from pdegen.formats.plan import (
    FieldPlan,
    ImportOptions,
    Plan,
    View,
    box,
    numbers,
    split_sizes,
)
from pdegen.formats.sandbox import ImportedFile
from pdegen.store.format import Json
from pdegen.store.layout import Coordinate
from pdegen.store.reading import Store
from tests.pdegen.formats.files import random
from tests.pdegen.formats.test_descriptions import contents
from tests.pdegen.formats.test_published_plans import described


@pytest.fixture
def array(tmp_path):
    """Make an array of a file from its values."""

    def made(values: np.ndarray, name: str = "p") -> Array:
        return contents(tmp_path, {name: values}).array(name)

    return made


VALUES = np.arange(2 * 7 * 5 * 3 * 4 * 6, dtype=float).reshape(2, 7, 5, 3, 4, 6)
AXES = ("part", "x", "sample", "channel", "y", "time")


def test_a_view_reads_its_part_frames_and_channels_backwards_and_along(array):
    view = View(
        array(VALUES), AXES, (1, 4), 1, (1, 3), backwards=("y",), along=(("z", 2),)
    )  # fmt: skip
    assert view.dims == ("time", "channel", "x", "y", "z")
    sizes = {"part": 2, "x": 7, "sample": 5, "channel": 2, "y": 4, "time": 3, "z": 2}
    assert view.sizes == sizes
    expected = VALUES[1, :, 2:4, 1:3, ::-1, 1:4].transpose(1, 4, 2, 0, 3)
    np.testing.assert_array_equal(view.read(2, 4), np.stack([expected] * 2, axis=-1))
    said = {"part": 1, "channels": [1, 3], "backwards": ["y"], "along": {"z": 2}}
    assert view.selection == said


def test_a_single_frame_has_no_axis_and_a_number_no_axes(array):
    view = View(array(VALUES), AXES, (2, 3), 0)
    assert view.dims == ("channel", "x", "y")
    np.testing.assert_array_equal(view.read(1, 3), VALUES[0, :, 1:3, :, :, 2].transpose(1, 2, 0, 3))

    def largest(values: np.ndarray) -> np.ndarray:
        return values.max(axis=(1, 2, 3))

    view = replace(view, number=largest)
    assert (view.dims, view.selection) == ((), {"part": 0, "number": "largest"})
    np.testing.assert_array_equal(view.read(1, 3), VALUES[0, :, 1:3, :, :, 2].max(axis=(0, 2, 3)))


def test_axes_of_a_mesh_keep_their_order(array):
    view = View(array(np.zeros((3, 1, 4, 5, 6))), ("j", "", "i", "sample", "channel"))
    assert view.dims == ("channel", "j", "i")


@pytest.mark.parametrize(
    ("shape", "axes", "message"),
    [
        ((3, 0), ("sample", "x"), r"p is empty: its shape is \(3, 0\)"),
        ((3, 4), ("sample",), r"p should have the axes sample, has \(3, 4\)"),
        ((3, 2), ("sample", ""), r"p should have the axes sample, 1, has \(3, 2\)"),
    ],
)
def test_names_that_do_not_fit_an_array_are_refused(array, shape, axes, message):
    with pytest.raises(FormatError, match=message):
        View(array(np.zeros(shape)), axes)


PARTS = [random(n, 3, seed=n) for n in (4, 2, 5)]


def joined(array, **changes: object) -> FieldPlan:
    views = tuple(View(array(values), ("sample", "x")) for values in PARTS)
    return FieldPlan("u", views, **{"attributes": {"units": "m"}} | changes)


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (1, 3), (3, 5), (3, 9), (6, 8), (4, 6)])
def test_samples_are_read_across_files(array, start, stop):
    found = joined(array).read(range(start, stop))
    np.testing.assert_array_equal(found, np.concatenate(PARTS)[start:stop])


@pytest.mark.parametrize("change", [None, 0, 10])
@pytest.mark.parametrize("block", [1, 2 * 3 * 8, 4 * 3 * 8, 2**24])
def test_every_sample_is_compared_with_the_digest(array, monkeypatch, change, block):
    monkeypatch.setattr("pdegen.formats.plan.BLOCK", block)
    digest, values = Digest(), np.concatenate(PARTS)
    if change is not None:
        values[change, 1] += 1
    digest.add(values)
    field = joined(array, sha256=digest.hex)
    if change is None:
        field.check()
        return
    with pytest.raises(FormatError, match="p differs from its SHA-256: the file was changed"):
        field.check()


@pytest.mark.parametrize(
    ("type_in_file", "stored"),
    [
        ("float32", "float32"), ("float64", "float64"), ("float16", "float32"),
        ("bool", "float32"), ("int8", "float32"), ("uint8", "float32"), ("int16", "float32"),
        ("uint16", "float32"), ("int32", "float64"), ("uint32", "float64"),
    ],
)  # fmt: skip
def test_types_of_files_are_stored_without_rounding(array, type_in_file, stored):
    values = array(np.arange(6).reshape(2, 3).astype(type_in_file))
    field = FieldPlan("u", (View(values, ("sample", "channel")),), {"units": "m"})
    variable = field.variable
    assert (variable.name, variable.dims, variable.shape) == ("u", ("channel",), (3,))
    assert variable.dtype == stored
    expected = {"units": "m", "channels": ["c0", "c1", "c2"]}
    converted = {} if stored == type_in_file else {"type_in_file": type_in_file}
    assert variable.attributes == expected | converted
    assert field.read(range(2)).dtype == stored


@pytest.mark.parametrize("type_in_file", ["int64", "uint64"])
def test_whole_numbers_that_floats_do_not_hold_are_refused_unless_a_type_is_given(
    array, type_in_file
):
    values = np.array([[2**53 - 1, 0, 1], [2**53 + 2, 0, 1]], type_in_file)
    view = View(array(values), ("sample", "x"))
    with pytest.raises(FormatError, match=f"p is {type_in_file} and holds 9.0072e"):
        FieldPlan("u", (view,), {}).check()
    FieldPlan("u", (View(array(values[:1]), ("sample", "x")),), {}).check()
    kept = FieldPlan("u", (view,), {}, type_in_file)
    kept.check()
    np.testing.assert_array_equal(kept.read(range(2)), values)


# plans


def plan(array, **changes: object) -> Plan:
    a, u = (FieldPlan(name, (View(array(random(5, 3)), ("sample", "x")),), {}) for name in "au")
    said = {
        "name": "n", "title": "t", "equation": "e", "source": "s", "fields": (a, u),
        "coordinates": (numbers(5),), "splits": {"train": (0, 3), "test": (3, 5)},
    }  # fmt: skip
    return Plan(**said | changes)


def test_variables_of_different_numbers_of_samples_are_refused(array):
    fields = tuple(
        FieldPlan(name, (View(array(random(n, 3)), ("sample", "x")),), {})
        for name, n in (("a", 5), ("u", 4))
    )
    message = "the variables have different numbers of samples: a has 5, u has 4"
    with pytest.raises(FormatError, match=message):
        plan(array, fields=fields)


@pytest.mark.parametrize(
    "splits", [{"train": (0, 6)}, {"train": (0, 3), "test": (2, 5)}, {"train": (2, 2)}]
)
def test_impossible_splits_are_refused_with_what_to_give(array, splits):
    with pytest.raises(FormatError, match="give sizes by --split NAME=SIZE"):
        plan(array, splits=splits)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"train": 5}, {"train": (0, 5)}),
        ({"train": 4, "validation": 3, "test": 2},
         {"train": (0, 4), "validation": (6, 9), "test": (9, 11)}),
        ({"train": 4, "validation": 3}, {"train": (0, 4), "validation": (8, 11)}),
        ({"train": 9, "test": 2, "validation": 0}, {"train": (0, 9), "test": (9, 11)}),
    ],
)  # fmt: skip
def test_train_is_first_test_last_and_validation_before_it(sizes, expected):
    assert split_sizes(sizes, 11) == expected


@pytest.mark.parametrize(
    "sizes", [{"train": 12}, {"train": 9, "test": 3}, {"train": 5, "test": -1}]
)
def test_splits_of_more_samples_than_there_are_are_refused(sizes):
    listed = ", ".join(f"{name} {n}" for name, n in sizes.items())
    with pytest.raises(FormatError, match=f"11 samples cannot be split into {listed}: give"):
        split_sizes(sizes, 11)


def test_a_box_has_the_grids_and_positions_of_its_axes():
    points = {"x": 3 * CellGrid(4).x - 1, "z": 2 * PeriodicGrid(6).x + 5}
    found = box("cell,nodal,periodic", {"x": 4, "y": 5, "z": 6}, points)
    grids = (CellGrid(4, 3.0, -1.0), NodalGrid(5), PeriodicGrid(6, 2.0, 5.0))
    for grid, expected in zip(found.grids, grids, strict=True):
        assert type(grid) is type(expected)
        np.testing.assert_allclose(grid.x, expected.x, rtol=1e-14)
        assert grid.length == pytest.approx(expected.length, rel=1e-14)
    assert box("nodal", {"x": 4, "y": 5}, {}) == Box((NodalGrid(4), NodalGrid(5)))


def test_points_may_be_rounded_by_a_thousandth_of_the_spacing():
    rounded = PeriodicGrid(8).x + 0.9e-3 / 8
    assert box("periodic", {"x": 8}, {"x": rounded}) == Box((PeriodicGrid(8),))
    moved = np.linspace(1, 3, 5)
    moved[3] += 0.4e-3
    (grid,) = box("nodal", {"x": 5}, {"x": moved}).grids
    assert (grid.start, grid.length) == (1.0, 2.0)
    moved[3] += 0.2e-3
    with pytest.raises(FormatError, match="axis x has 5 points: they do not rise by equal steps"):
        box("nodal", {"x": 5}, {"x": moved})


def test_samples_are_numbered():
    found = numbers(3)
    assert (found.name, found.dims, found.values.tolist()) == ("sample", ("sample",), [0, 1, 2])
    assert found.attributes == {"long_name": "number of the sample"}


# what the user describes


def test_a_described_import_has_all_that_was_said(tmp_path):
    files = [
        replace(contents(tmp_path, {"p": random(n, 4, 6), "q": random(n, 3, 4, 6), "r": random(2)}),
                path=tmp_path / f"{n}.npz")
        for n in (5, 2)
    ]  # fmt: skip
    options = ImportOptions("p", "q", "cell,nodal", {"train": 4, "test": 1}, boundary=0.5)
    said = described(described_plan(files, options))
    axes = ("sample", "time", "x", "y")
    a = {"long_name": "p of 5.npz", "role": "input", "units": "1"}
    u = {"long_name": "q of 5.npz", "role": "target", "units": "1"}
    assert said["field a"] == [
        "p",
        ("sample", "x", "y"),
        None,
        {},
        ("x", "y"),
        (4, 6),
        "float64",
        a,
    ]
    assert said["field u"] == ["q", axes, None, {}, axes[1:], (3, 4, 6), "float64", u]
    assert said["coordinate time"][1] == [3, 0, 1, 2, 2, 3]
    assert said["coordinate sample"][1] == [7, 0, 1, 2, 6, 21]
    texts = [said[key] for key in ("name", "title", "equation", "source", "warning")]
    title = "Imported from 5.npz, 2.npz"
    assert texts == ["imported", title, "not given", "as declared", ""]
    assert said["domain"] == Box((CellGrid(4), NodalGrid(6))).attributes()
    assert said["splits"] == {"train": (0, 4), "test": (6, 7)}
    assert said["physics"] == {"boundary": {"u": 0.5}}


@pytest.mark.parametrize("times", [None, "first", "last"])
def test_a_trajectory_begins_with_the_input_at_time_zero(tmp_path, times):
    options = ImportOptions("p", "p", "cell", {"train": 4}, times=times)
    said = described(described_plan([contents(tmp_path, {"p": random(5, 3, 4)})], options))
    axes = ("sample", "x", "time") if times == "last" else ("sample", "time", "x")
    frames, points = (4, 3) if times == "last" else (3, 4)
    assert said["field a"][1:6] == [axes, (0, 1), {}, ("x",), (points,)]
    assert said["field u"][1:6] == [axes, (1, frames), {}, ("time", "x"), (frames - 1, points)]
    numbers = np.arange(1.0, frames)
    assert said["coordinate time"][1][1] == 1
    assert said["coordinate time"][1][-1] == numbers.sum()


def test_a_trajectory_of_one_time_is_refused(tmp_path):
    options = ImportOptions("p", "p", "cell", {"train": 4})
    with pytest.raises(FormatError, match=r"p \(5, 1, 4\) has a single time"):
        described_plan([contents(tmp_path, {"p": random(5, 1, 4)})], options)


@pytest.mark.parametrize("option", ["input", "target", "grid", "splits"])
def test_each_missing_option_is_named_alone(tmp_path, option):
    options = ImportOptions("p", "q", "cell", {"train": 4})
    word = {
        "input": "--input (name of an array)", "target": "--target (name of an array)",
        "grid": "--grid (periodic, cell, nodal, curvilinear or cloud)",
        "splits": "--split (NAME=SIZE, of train, validation and test)",
    }[option]  # fmt: skip
    file = contents(tmp_path, {"p": random(5, 4), "q": random(5, 4)})
    with pytest.raises(FormatError) as caught:
        described_plan([file], replace(options, **{option: None}))
    assert str(caught.value).endswith(f": not a recognised file: give {word}")


# the job that writes an import


def job(array, folder, **changes: object) -> ImportJob:
    file = ImportedFile(folder / "one.npz", 7, "0" * 64, 5)
    made = plan(array, **changes)
    files = [contents(folder, {"p": random(5, 3), "more": random(2)})]
    return ImportJob(made, (file,), _summary(files, [file], made))


def test_the_attribute_of_an_import_lists_files_variables_and_what_was_left_out(array, tmp_path):
    view = View(array(VALUES.astype("f4")), AXES, (1, 4), 1)
    field = FieldPlan("u", (view,), {})
    splits = {"train": (0, 5)}
    files = [replace(contents(tmp_path, {"p": random(2), "r": random(2)}), unreadable={"b": "is"})]
    sources = [ImportedFile(tmp_path / f"{name}.npz", n, name * 64, 5)
               for name, n in (("c", 7), ("d", 9))]  # fmt: skip
    made = plan(array, fields=(field,), splits=splits)
    expected: Json = {
        "files": [{"name": "c.npz", "bytes": 7, "sha256": "c" * 64},
                  {"name": "d.npz", "bytes": 9, "sha256": "d" * 64}],
        "format": "test",
        "variables": {
            "u": {"key": "p", "axes": [*AXES], "frames": [1, 4], "part": 1, "type": "float32"},
        },
        "left_out": ["b", "r"],
        "source": "s",
    }  # fmt: skip
    assert _summary(files, sources, made) == expected
    warned = replace(made, warning="wrong")
    assert _summary(files, sources, warned) == expected | {"warning": "wrong"}


def test_shards_hold_what_fits_and_at_least_a_sample(array, tmp_path, monkeypatch):
    for most, samples in ((1, 1), (24, 1), (71, 2), (72, 3), (2**24, 5)):
        monkeypatch.setattr("pdegen.formats.importing._SHARD_BYTES", most)
        assert job(array, tmp_path).shard == samples


def test_each_fact_makes_another_fingerprint(array, tmp_path, monkeypatch):
    base = job(array, tmp_path)
    x = Coordinate("x", ("x",), np.arange(3.0), {"grid": "cell"})
    coordinates = (
        (x,), (replace(x, values=np.arange(3.0) + 1),), (replace(x, name="y"),),
        (replace(x, attributes={"grid": "nodal"}),),
    )  # fmt: skip
    others = [
        replace(base, sources=(replace(base.sources[0], sha256="1" * 64),)),
        replace(base, summary=base.summary | {"variables": {}}),
        *(job(array, tmp_path, coordinates=c) for c in coordinates),
        job(array, tmp_path, splits={"train": (0, 4)}),
    ]
    found = [one.fingerprint for one in (base, *others)]
    monkeypatch.setattr("pdegen.formats.importing._SHARD_BYTES", 72)
    found.append(base.fingerprint)
    assert len(set(found)) == len(found) == 9
    same = replace(base, plan=replace(base.plan, title="other"))
    assert same.fingerprint == base.fingerprint


def test_an_import_has_all_attributes_of_its_plan(array, tmp_path):
    made = job(array, tmp_path, attributes={"more": 3})
    layout = made.layout()
    assert (layout.samples, layout.shard) == (5, 5)
    assert [one.name for one in layout.variables] == ["a", "u"]
    assert layout.coordinates == made.plan.coordinates
    attributes = dict(layout.attributes)
    assert attributes.pop("provenance")["pdegen"]
    assert attributes == {
        "title": "t", "equation": "e", "recipe": {"name": "n"}, "more": 3,
        "splits": {"train": [0, 3], "test": [3, 5]}, "fingerprint": made.fingerprint,
        "imported": made.summary,
    }  # fmt: skip


def test_another_import_is_told_by_its_files(array, tmp_path, finished, imported):
    made = job(array, tmp_path)
    assert made.difference(finished) == f"{finished.url} was not imported from one.npz"
    other = f"{imported.url} was imported from other files than one.npz"
    assert made.difference(imported) == other
    (file,) = Store(imported.url).metadata.imported.files
    same = replace(made, sources=(replace(made.sources[0], sha256=file.sha256),))
    assert same.difference(imported) == (
        f"{imported.url} was imported from one.npz with other options"
    )


def test_a_coordinate_is_small_and_unpacked(array, monkeypatch):
    x = array(random(8))
    np.testing.assert_array_equal(x.values(), random(8))
    with pytest.raises(FormatError, match="a coordinate has at most"):
        replace(x, location=None).values()
    monkeypatch.setattr(arrays, "SMALL_BYTES", 63)
    with pytest.raises(FormatError, match="p has 64 bytes: a coordinate has at most 63"):
        x.values()
