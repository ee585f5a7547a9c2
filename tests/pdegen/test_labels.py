"""Names of channels are a coordinate that plain xarray selects by."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import mlcroissant
import numpy as np
import pytest
import xarray as xr
import zarr

from operators.data import DataError, read_pairs
from pdegen.formats.exporting import export
from pdegen.formats.importing import import_files
from pdegen.formats.plan import ImportOptions
from pdegen.generation.derived import add_noise, at_levels
from pdegen.generation.generate import RecipeJob, generate, layout
from pdegen.generation.verify import repair, verify
from pdegen.recipe import load_recipe, recipe_names
from pdegen.store.format import ROOT, Labels, MetadataError, parse
from pdegen.store.layout import Coordinate, Layout
from pdegen.store.reading import Store, StoreError, open_sealed
from pdegen.store.writing import lay_out
from tests.stores import contents, faults, in_memory, interrupted, objects_of, resealed

NAMES = {
    "airfoil": ("u", "v"), "burgers-2d": ("u", "v"), "elasticity": ("x", "y"),
    "gray-scott": ("u", "v"), "plasticity": ("x", "y"), "shock-tube": ("rho", "m", "E"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tubes():
    sizes = {"splits.train": 4, "splits.validation": 1, "splits.test": 1}
    small = {"samples": 6, "shard": 3, "problem.resolution": 32}
    return load_recipe("shock-tube-quick").with_overrides({**small, **sizes})


@pytest.fixture(scope="module")
def made(tubes, tmp_path_factory):
    return generate(tubes, str(tmp_path_factory.mktemp("tubes") / "s.zarr"))


@pytest.fixture
def tube(made, tubes, tmp_path) -> Store:
    return generate(tubes, str(tmp_path / "s.zarr"))


def opened(store: Store | str) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xr.open_zarr(store if isinstance(store, str) else store.url).load()


def of_version_3(monkeypatch) -> None:
    """Layouts as the version before labels wrote them."""
    objects = Layout.objects
    monkeypatch.setattr(Layout, "objects", lambda layout, version=3: objects(layout, 3))


def test_xarray_selects_a_channel_by_its_name(made):
    dataset = opened(made)
    assert [*dataset.channel.values] == ["rho", "m", "E"]
    for k, name in enumerate(dataset.channel.values):
        for variable in "au":
            values = dataset[variable].sel(channel=name)
            np.testing.assert_array_equal(values, made.values(variable, range(6))[:, k])
    assert verify(made.url, deep=1).faults == []
    assert read_pairs(made.url, "train").input_channels[1].name == "m"


@pytest.mark.parametrize(
    "recipe", ["heat", *(name for name in recipe_names() if name.startswith(tuple(NAMES)))]
)
def test_all_recipes_with_channels_label_them(recipe, tmp_path):
    planned = layout(load_recipe(recipe))
    channels = {v.attributes["channels"][0] for v in planned.variables if "channel" in v.dims}
    wanted = next((names for stem, names in NAMES.items() if recipe.startswith(stem)), None)
    assert bool(channels) == bool(wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = xr.open_zarr(lay_out(str(tmp_path / "s.zarr"), planned).url)
    assert tuple(dataset.indexes.get("channel", ())) == (wanted or ())
    for name in wanted or ():
        assert "channel" not in dataset.sel(channel=name).dims


@pytest.mark.parametrize("names", [("u",), ("rho", "m", "E"), ("größe", "", "ξ")])
def test_the_object_is_the_one_that_zarr_writes(names, tubes):
    labels = Labels(names)
    memory = in_memory({ROOT: json.dumps(labels.zarr_metadata).encode()})
    array = zarr.open_array(memory, mode="r+", zarr_format=3)
    array[...] = np.array(names, dtype=object)
    assert contents(memory)["c/0"] == labels.data
    assert np.asarray(array[...]).tolist() == [*names]


def test_the_metadata_are_those_that_zarr_writes(tubes):
    objects = layout(tubes).objects()
    assert json.loads(objects["channel/zarr.json"]) == Labels(("rho", "m", "E")).zarr_metadata
    assert objects == layout(tubes).objects()


@pytest.mark.parametrize(
    "channels", [["a", "b", "b"], ["a", "b"], [1, 2, 3], "abc", ["a", "b", "\ud800"]]
)
def test_names_that_do_not_tell_channels_apart_are_no_labels(channels, tubes):
    planned = layout(tubes)
    variables = tuple(
        replace(v, attributes={**v.attributes, "channels": channels}) if "channel" in v.dims else v
        for v in planned.variables
    )
    assert replace(planned, variables=variables, domain=None).labels is None


def test_other_names_in_each_variable_are_no_labels(tubes, tmp_path):
    planned = layout(tubes)
    a, *others = planned.variables
    other = replace(a, attributes={**a.attributes, "channels": ["p", "q", "r"]})
    store = lay_out(str(tmp_path / "s.zarr"), replace(planned, variables=(other, *others)))
    assert store.description.labels is None
    assert "channel" not in opened(store).coords


def test_a_coordinate_of_the_equation_keeps_the_name(tubes, tmp_path):
    planned = layout(tubes)
    own = Coordinate("channel", ("channel",), np.arange(3), {"long_name": "number"})
    planned = replace(planned, coordinates=(*planned.coordinates, own))
    store = lay_out(str(tmp_path / "s.zarr"), planned)
    assert [*opened(store).channel.values] == [0, 1, 2]


def test_imported_channels_have_common_labels(tmp_path):
    rng = np.random.default_rng(0)
    a, u = rng.random((9, 8, 2)), rng.random((9, 8, 2))
    np.savez(tmp_path / "pairs.npz", p=a, q=u)
    axes = ("sample", "x", "channel")
    declaration = ImportOptions(
        "p", "q", "nodal", {"train": 7, "test": 2}, input_axes=axes, target_axes=axes
    )
    store = import_files([tmp_path / "pairs.npz"], str(tmp_path / "s.zarr"), declaration)
    dataset = opened(store)
    for k, name in enumerate(("c0", "c1")):
        np.testing.assert_array_equal(dataset.a.sel(channel=name), a[..., k])
        np.testing.assert_array_equal(dataset.u.sel(channel=name), u[..., k])
    assert faults(store) == []


@pytest.mark.parametrize("format", ["mat", "npy"])
def test_exports_and_imports_keep_the_labels(format, made, tmp_path):
    path = export(made.url, format, tmp_path / f"file{'' if format == 'npy' else f'.{format}'}")
    store = import_files([path], str(tmp_path / "s.zarr"))
    xr.testing.assert_equal(opened(store), opened(made))


def test_a_store_with_noise_has_the_labels_of_its_parent(made, tmp_path):
    levels = at_levels({"kind": "relative", "seed": 0}, [0.0, 0.1])
    noisy = add_noise(made.url, "u", levels, str(tmp_path / "n.zarr"))
    assert [*opened(noisy).u.sel(level=0.1, channel="m").shape] == [6, 32]
    assert faults(noisy) == []


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph:DeprecationWarning")  # of rdflib
def test_card_and_croissant_name_the_labels(made):
    card = (Path(made.url) / "README.md").read_text("utf-8")
    assert "| `channel` | channel | 3 | string | names of the channels: rho, m, E | |" in card
    dataset = mlcroissant.Dataset(jsonld=str(Path(made.url) / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors
    assert "channel" in [one.id for one in dataset.metadata.record_sets]


def test_a_flipped_bit_is_noticed_and_mended(tube, made):
    path = Path(tube.url) / Labels.KEY
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(bytes(b ^ (4 if i == place else 0) for i, b in enumerate(data)))
        assert faults(tube) == [f"{Labels.KEY}: differs from the seal"]
    with pytest.raises(DataError, match="channel/c/0 differs from the seal"):
        read_pairs(tube.url, "train")
    assert repair(tube.url).faults == []
    assert objects_of(tube) == objects_of(made)


def test_labels_of_a_stranger_are_those_of_the_variables(tube):
    """They are sealed soundly, and name other channels than the readers of this project."""
    (Path(tube.url) / Labels.KEY).write_bytes(Labels(("E", "m", "rho")).data)
    resealed(tube)
    assert faults(tube) == [f"{Labels.KEY}: differs from the names of the channels"]
    with pytest.raises(DataError, match="channel/c/0 differs from the names of the channels"):
        read_pairs(tube.url, "train")
    with pytest.raises(StoreError, match="differs from the names of the channels"):
        open_sealed(tube.url)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("channel"),
        lambda arrays: arrays["channel"].update(shape=[4]),
        lambda arrays: arrays["channel"].update(dimension_names=["x"]),
        lambda arrays: arrays["channel"].update(codecs=[{"name": "vlen-utf8"}]),
        lambda arrays: arrays["channel"].update(attributes={"title": "x" * 9}),
        lambda arrays: arrays.update(names=arrays["channel"]),
        lambda arrays: arrays["a"]["attributes"].update(channels=["p", "q", "r"]),
    ],
)
def test_metadata_of_labels_that_we_do_not_write_are_refused(change, tube):
    content = json.loads((Path(tube.url) / ROOT).read_text("utf-8"))
    change(content["consolidated_metadata"]["metadata"])
    with pytest.raises(MetadataError, match="the metadata are damaged"):
        parse(json.dumps(content).encode())


def test_a_store_of_version_3_is_read_and_verified_and_mended(tubes, made, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        of_version_3(patch)
        store = generate(tubes, str(tmp_path / "s.zarr"))
    before = objects_of(store)
    assert store.version == 3
    assert "channel" not in opened(store).coords
    assert verify(store.url, deep=1).faults == []
    assert read_pairs(store.url, "train").u.equal(read_pairs(made.url, "train").u)
    assert objects_of(generate(tubes, store.url, resume=True)) == before
    (Path(store.url) / "x/c/0").write_bytes(b"")
    assert repair(store.url).faults == []
    assert objects_of(store) == before
    content = json.loads(before[ROOT])
    content["consolidated_metadata"]["metadata"]["channel"] = Labels(
        ("rho", "m", "E")
    ).zarr_metadata
    with pytest.raises(MetadataError, match="channel"):
        parse(json.dumps(content).encode())


def test_an_unfinished_store_of_version_3_goes_on_as_one_of_today(
    tubes, made, tmp_path, monkeypatch
):
    url = str(tmp_path / "s.zarr")
    with monkeypatch.context() as patch, interrupted(RecipeJob, sample=4):
        of_version_3(patch)
        generate(tubes, url, workers=1)
    assert Store(url).version == 3
    written = (Path(url) / "u/c/0/0/0").stat().st_mtime_ns
    assert objects_of(generate(tubes, url, resume=True)) == objects_of(made)
    assert (Path(url) / "u/c/0/0/0").stat().st_mtime_ns == written  # its shards count
