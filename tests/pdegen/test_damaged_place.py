"""A damaged store is replaced, and arrays of others beside it are not."""

import shutil

import pytest

from pdegen.making.generate import generate
from pdegen.recipe import load_recipe
from pdegen.store.reading import StoreError


def test_an_array_that_the_seal_does_not_have_stays_where_the_root_is_damaged(tmp_path):
    sizes = {"samples": 4, "splits.train": 2, "splits.validation": 1, "splits.test": 1}
    recipe = load_recipe("burgers-quick").with_overrides({**sizes, "problem.resolution": 64})
    url = generate(recipe, str(tmp_path / "s.zarr"), workers=1).url
    mine = tmp_path / "s.zarr" / "mine"
    (mine / "c").mkdir(parents=True)
    for name in ("zarr.json", "c/0"):
        (mine / name).write_text("mine", "utf-8")
    (tmp_path / "s.zarr" / "zarr.json").write_text("{", "utf-8")
    with pytest.raises(StoreError, match=r"mine/c/0, mine/zarr\.json; nothing was deleted"):
        generate(recipe, url, workers=1, overwrite=True)
    assert (mine / "c" / "0").read_text("utf-8") == "mine"
    shutil.rmtree(mine)
    assert generate(recipe, url, workers=1, overwrite=True).said.sealed
