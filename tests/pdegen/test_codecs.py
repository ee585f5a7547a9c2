"""How the chunks of a store are compressed: the values and the guarantees are the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from operators.data import DataError, open_pairs
from pdegen.generation.generate import generate
from pdegen.generation.verify import repair, verify
from pdegen.recipe import Recipe
from pdegen.store.reading import Store, StoreError

CODECS = ("zstd", "none")


@pytest.fixture(scope="module", params=CODECS)
def coded(request, small, tmp_path_factory) -> Store:
    """A sealed store, to be read only."""
    recipe = small.with_overrides({"codec": request.param})
    return generate(recipe, str(tmp_path_factory.mktemp("coded") / "s.zarr"), workers=1)


def test_the_values_are_the_same_to_every_reader(coded: Store, finished: Store) -> None:
    ours, same = open_pairs(coded.url, "train").resident(), open_pairs(finished.url, "train")
    for name in finished.variables:
        assert np.array_equal(
            zarr.open_array(f"{coded.url}/{name}", mode="r")[:], finished.values(name)
        )
    assert np.array_equal(ours.a, same.resident().a)
    assert np.array_equal(ours.u, same.resident().u)
    assert verify(coded.url, deep=4).faults == []


def test_a_flipped_byte_is_found_by_every_reader(coded: Store, tmp_path: Path) -> None:
    store = Store(str(copy_of(coded, tmp_path)))
    path = Path(store.url) / store.key("u", 1)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"(?i)checksum"):
        zarr.open_array(f"{store.url}/u", mode="r")[:]
    with pytest.raises(DataError, match="damaged"):
        open_pairs(store.url, "train").resident()
    with pytest.raises(StoreError, match="damaged"):
        store.values("u", range(store.samples))
    assert [fault.shard for fault in verify(store.url, check_values=False).faults] == [1]
    repair(store.url)
    assert path.read_bytes() == (Path(coded.url) / store.key("u", 1)).read_bytes()


def test_none_is_the_plain_values_and_zstd_is_smaller(small: Recipe, tmp_path: Path) -> None:
    sizes = {}
    for codec in ("lz4", *CODECS):
        recipe = small.with_overrides({"codec": codec, "problem.resolution": 32})
        store = generate(recipe, str(tmp_path / codec), workers=1)
        sizes[codec] = (Path(store.url) / store.key("u", 0)).stat().st_size
    values = 4 * small.shard * 32
    assert values < sizes["none"] < values + 200  # checksums and index
    assert sizes["zstd"] <= sizes["lz4"] <= sizes["none"]


def copy_of(store: Store, folder: Path) -> Path:
    return Path(shutil.copytree(store.url, folder / "copy.zarr"))
