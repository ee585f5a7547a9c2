"""Folders for the Hugging Face Hub: `datasets` reads offline what the store holds, bit for bit."""

import io
import json
import os
import random
import re
import shutil
import sys
from itertools import pairwise

import numpy as np
import pytest

from pdegen.formats import huggingface, sandbox
from pdegen.formats.arrays import FormatError
from pdegen.formats.exporting import export
from pdegen.formats.importing import import_files
from pdegen.generation.generate import generate
from pdegen.store.card import escaped
from pdegen.store.reading import Store
from tests.absent import absent
from tests.stores import failing, faults, resealed, with_attributes

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
try:
    import pyarrow.parquet

    import datasets
except ImportError:
    absent("datasets or pyarrow is missing: make test installs them")


@pytest.fixture(params=["finished", "imported"])
def store(request) -> Store:
    return request.getfixturevalue(request.param)


def loaded(folder, tmp_path, name="default"):
    return datasets.load_dataset(str(folder), name, cache_dir=str(tmp_path / "cache"))


def same_bits(found, expected):
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def check_same(folder, store, tmp_path):
    splits = loaded(folder, tmp_path)
    assert {name: len(rows) for name, rows in splits.items()} == {
        name: stop - start for name, (start, stop) in store.metadata.splits.items()
    }
    for name, rows in splits.items():
        samples = range(*store.metadata.splits[name])
        assert rows["sample"][:] == list(samples)
        table = rows.with_format("arrow")[:]
        for variable in store.variables:
            expected = store.values(variable, samples)
            flat = table[variable].combine_chunks()
            while not hasattr(flat, "to_numpy") or "list" in str(getattr(flat, "type", "")):
                flat = getattr(flat, "storage", flat).flatten()
            same_bits(flat.to_numpy().reshape(expected.shape), expected)
            if expected.dtype == np.float32:  # to which `datasets` rounds other numbers
                same_bits(rows.with_format("numpy")[:][variable], expected)


def test_datasets_reads_the_same_bits_offline(store, tmp_path):
    folder = export(store.url, "huggingface", tmp_path / "hub")
    check_same(folder, store, tmp_path)
    (shared,) = (
        loaded(folder, tmp_path, "coordinates")["shared"].with_format("arrow")[:].to_pylist()
    )
    assert shared.keys() == store.description.coordinates.keys() - {"sample"}
    for name, values in shared.items():
        same_bits(np.asarray(values), store.values(name))


def row_bytes(store):
    """Size of a sample in bytes."""
    arrays = [store.arrays[name] for name in store.variables]
    return sum(array.dtype.itemsize * np.prod(array.shape[1:], dtype=int) for array in arrays)


def test_many_files_hold_bounded_parts_of_the_store(store, tmp_path, monkeypatch):
    row = row_bytes(store)
    monkeypatch.setattr(huggingface, "FILE_BYTES", 4 * (row + 8))
    monkeypatch.setattr(huggingface, "_GROUP_BYTES", 3 * (row + 8))
    values, asked = Store.values, []

    def counted(self, name, samples=None):
        asked.append(0 if samples is None else len(samples))  # coordinates are read whole
        return values(self, name, samples)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "values", counted)
        folder = export(store.url, "huggingface", tmp_path / "hub")
    assert max(asked) == 3
    parts = sorted((folder / "data").glob("train-*.parquet"))
    assert [part.name for part in parts] == [f"train-0000{k}-of-00002.parquet" for k in (0, 1)]
    groups = pyarrow.parquet.ParquetFile(parts[0]).metadata
    assert [groups.row_group(k).num_rows for k in range(groups.num_row_groups)] == [3, 1]
    check_same(folder, store, tmp_path)


def test_the_progress_of_an_export_counts_samples(store, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "_GROUP_BYTES", 3 * (row_bytes(store) + 8))
    told = []
    export(store.url, "huggingface", tmp_path / "hub", progress=told.append)
    done = [one.done for one in told]
    assert (
        done[-1]
        == told[-1].total
        == sum(stop - start for start, stop in store.raw_attributes["splits"].values())
    )
    assert all(0 < later - earlier <= 3 for earlier, later in pairwise([0, *done]))


def test_samples_that_could_not_be_computed_are_no_rows_and_no_split(small, tmp_path, monkeypatch):
    failing(monkeypatch, 3, small.samples - 1)
    recipe = small.with_overrides({"splits.test": 1})
    store = generate(recipe, str(tmp_path / "s.zarr"), skip_failed=True)
    splits = loaded(export(store.url, "huggingface", tmp_path / "hub"), tmp_path)
    assert set(splits) == {"train", "validation"}
    rows, (start, stop) = splits["train"], store.metadata.splits["train"]
    kept = [sample for sample in range(start, stop) if sample != 3]
    assert rows["sample"][:] == kept
    whole = store.values("u", range(start, stop))
    same_bits(rows.with_format("numpy")[:]["u"], whole[[k - start for k in kept]])


def test_pages_carry_checksums_that_their_readers_can_compare(finished, tmp_path):
    file = (
        export(finished.url, "huggingface", tmp_path / "hub") / "data/train-00000-of-00001.parquet"
    )
    whole, chance = file.read_bytes(), random.Random(0)
    expected = pyarrow.parquet.read_table(file)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    others = {True: 0, False: 0}  # flips that are read as other numbers, with and without checks
    for _ in range(60):
        data = bytearray(whole)
        data[chance.randrange(footer)] ^= 1 << chance.randrange(8)
        for checked in others:
            try:
                table = pyarrow.parquet.read_table(
                    io.BytesIO(bytes(data)), page_checksum_verification=checked, use_threads=False
                )
            except (OSError, pyarrow.ArrowException):
                continue
            others[checked] += not table.equals(expected)
    assert others[True] == 0
    assert others[False] > 10


@pytest.mark.usefixtures("forked")
def test_an_import_has_the_rows_of_the_store_numbered_anew(store, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "FILE_BYTES", 2 * (row_bytes(store) + 8))  # two rows
    folder = export(store.url, "huggingface", tmp_path / "hub")
    assert len(list((folder / "data").glob("train-*.parquet"))) > 1
    back = import_files([folder], str(tmp_path / "back.zarr"), workers=1)
    rows = [k for start, stop in sorted(store.metadata.splits.values()) for k in range(start, stop)]
    assert faults(back) == []
    for name in store.variables:
        same_bits(back.values(name), store.values(name)[rows])
    for name in store.description.coordinates.keys() - {"sample"}:
        same_bits(back.values(name), store.values(name))
    same_bits(back.values("sample"), np.arange(len(rows)))
    for name, (start, stop) in store.metadata.splits.items():
        first, last = back.metadata.splits[name]
        assert rows[first:last] == list(range(start, stop))


def test_splits_are_imported_whose_order_is_not_that_of_their_samples(finished, tmp_path):
    with_attributes(
        moved := Store(str(shutil.copytree(finished.url, tmp_path / "moved.zarr"))),
        splits={"train": [5, 11], "test": [0, 2]},
    )
    resealed(moved)
    moved = Store(moved.url)
    folder = export(moved.url, "huggingface", tmp_path / "hub")
    back = import_files([folder], str(tmp_path / "back.zarr"), workers=1)
    assert back.metadata.splits == {"train": (2, 8), "test": (0, 2)}
    for split, (start, stop) in back.metadata.splits.items():
        expected = moved.values("u", range(*moved.metadata.splits[split]))
        same_bits(back.values("u", range(start, stop)), expected)


def test_samples_that_were_left_out_are_not_imported(small, tmp_path, monkeypatch):
    failing(monkeypatch, 3, small.samples - 1)
    store = generate(small, str(tmp_path / "s.zarr"), skip_failed=True)
    folder = export(store.url, "huggingface", tmp_path / "hub")
    back = import_files([folder], str(tmp_path / "back.zarr"), workers=1)
    start, stop = store.metadata.splits["train"]
    kept = [k for k in range(start, stop) if k != 3]
    assert back.skipped == []
    assert back.metadata.splits["train"] == (0, len(kept))
    same_bits(back.values("u", range(len(kept))), store.values("u", range(start, stop))[
        [k - start for k in kept]])  # fmt: skip


def test_a_table_by_itself_or_of_others_is_refused(finished, tmp_path):
    folder = export(finished.url, "huggingface", tmp_path / "hub")
    table = folder / "data/test-00000-of-00001.parquet"
    with pytest.raises(FormatError, match="give the folder that pdegen has exported"):
        import_files([table], str(tmp_path / "s.zarr"))
    (folder / "pdegen.json").unlink()
    with pytest.raises(FormatError, match=r"is not an exported folder, it has no pdegen\.json"):
        import_files([folder], str(tmp_path / "s.zarr"))
    assert not (tmp_path / "s.zarr").exists()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"u": [[0.0, 1.0], [2.0]]}, "u has rows of different shapes"),
        ({"u": [[0.0, 1.0], None]}, "u has rows of different shapes"),
        ({"u": [[0.0, 1.0], [2.0, None]]}, "u has rows without values"),
        ({"u": [0.0, 1.0]}, "cannot be read"),
        ({"u": ["a", "b"]}, "cannot be read|type"),
    ],
)
def test_a_reader_refuses_rows_of_other_shapes(tmp_path, columns, said):
    features = {"u": huggingface.Column("u", (2,), np.dtype("float64")).feature}
    table = pyarrow.table(columns).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    pyarrow.parquet.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(FormatError, match=said) as caught:
        sandbox.read_file(tmp_path / "p.parquet", "parquet", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_reader_unpacks_what_is_requested(finished, tmp_path):
    folder = export(finished.url, "huggingface", tmp_path / "hub")
    (table,) = (folder / "data").glob("train-*.parquet")
    start, stop = finished.metadata.splits["train"]
    for name in finished.variables:
        request = sandbox.Request(str(table), str(tmp_path), "parquet", names=[name])
        contents = huggingface.read(request)
        assert {k for k, array in contents.arrays.items() if array.location} == {name}
        same_bits(contents.arrays[name].values(), finished.values(name, range(start, stop)))


def test_the_card_has_a_header_and_says_what_the_data_are(finished, tmp_path):
    text = (export(finished.url, "huggingface", tmp_path / "hub") / "README.md").read_text("utf-8")
    header = re.match(r"---\n(.*?)\n---\n", text, re.S)
    lines = dict(line.split(": ", 1) for line in header[1].splitlines())
    said = {key: json.loads(value) for key, value in lines.items()}
    assert said["license"] == "cc-by-4.0"
    assert said["size_categories"] == ["n<1K"]
    assert [one["split"] for one in said["configs"][0]["data_files"]] == [*finished.metadata.splits]
    equation = escaped(finished.metadata.equation)
    for word in (equation, finished.metadata.content, finished.metadata.fingerprint):
        assert word in text
    assert "load_dataset" in text
    assert "Zarr v3 group" not in text
    assert text.count("@misc{pdegen-") == 1


def test_two_exports_are_the_same_bytes_and_replace_no_other_folder(finished, tmp_path):
    first, second = (export(finished.url, "huggingface", tmp_path / name) for name in "ab")
    for path in first.rglob("*.*"):
        assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()
    with pytest.raises(FormatError, match="exists: use --overwrite"):
        export(finished.url, "huggingface", first)
    export(finished.url, "huggingface", first, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/README.md").write_text("mine")
    with pytest.raises(FormatError, match="is not an exported folder"):
        export(finished.url, "huggingface", tmp_path / "mine", overwrite=True)


@pytest.mark.parametrize("format", ["huggingface", "npy"])
def test_what_others_put_into_the_folder_is_never_lost(finished, tmp_path, format):
    folder = export(finished.url, format, tmp_path / "out")
    (folder / ".git").mkdir()
    with pytest.raises(FormatError, match=r"holds \.git, which no export has written"):
        export(finished.url, format, folder, overwrite=True)
    (folder / ".git").rmdir()
    export(finished.url, format, folder, overwrite=True)


def test_without_pyarrow_the_extra_is_named(finished, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FormatError, match=r"pip install 'pdegen-operators\[huggingface\]'"):
        export(finished.url, "huggingface", tmp_path / "hub")
    assert list(tmp_path.iterdir()) == []
