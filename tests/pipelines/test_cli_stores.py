"""The commands on stores: dry runs, engines, verification in depth, repair, import and export."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pdegen.recipe import load_recipe
from pdegen.store.reading import Store
from tests.absent import absent
from tests.pipelines.command import everything
from tests.stores import objects_of


@pytest.fixture
def store(burgers, tmp_path):
    return shutil.copytree(burgers, tmp_path / "store.zarr")


def test_a_dry_run_says_what_would_be_done_and_does_nothing(pdegen, tmp_path):
    words = ["generate", "burgers-r10", "--out", "s.zarr", "--dry-run"]
    outcome = pdegen(*words)
    assert (outcome.status, outcome.err) == (0, [])
    assert outcome.out == [
        "burgers-r10 to s.zarr: 2048 samples in 16 shards of 128, 134.2 MB before compression",
        "samples 1024 to 1847 are in no split",
    ]
    outcome = pdegen(*words, "--scheduler", "slurm", "--workers", "20")
    assert "20 SLURM jobs, each:" in outcome.out
    assert any(line.startswith("#SBATCH") for line in outcome.out)
    assert everything(tmp_path) == {}


def test_repair_makes_again_what_is_bad_and_touches_nothing_else(pdegen, burgers, store):
    path = store / "u/c/1/0"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    times = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    outcome = pdegen("verify", store, "--json")
    (fault,) = json.loads("\n".join(outcome.out))["faults"]
    assert (outcome.status, fault["variable"], fault["shard"]) == (1, "u", 1)
    outcome = pdegen("verify", store, "--repair")
    assert outcome.status == 0
    assert outcome.out == [f"{store}: u/c/1/0 was restored", f"{store}: verified"]
    assert objects_of(Store(str(store))) == objects_of(Store(str(burgers)))
    touched = {
        str(path.relative_to(store)) for path, at in times.items() if path.stat().st_mtime_ns != at
    }
    assert touched == {"u/c/1/0"}


@pytest.mark.parametrize(
    ("format", "name"),
    [("mat", "x.mat"), ("hdf5", "x.h5"), ("npy", "x"), ("pt", "x.pt"), ("nc", "x.nc")],
)
def test_what_is_exported_is_imported_to_the_same_values(pdegen, burgers, format, name):
    outcome = pdegen("export", burgers, "--format", format, "--out", name)
    assert outcome.status == 0, outcome.err
    assert pdegen("import", name, "--out", "again.zarr").status == 0
    assert pdegen("verify", "again.zarr").status == 0
    ours, again = Store(str(burgers)), Store("again.zarr")
    for variable in ("a", "u"):
        assert np.array_equal(ours.values(variable), again.values(variable))


def test_the_card_of_a_dataset_for_the_hub_makes_it_again(pdegen, store):
    if find_spec("pyarrow") is None:
        absent("pyarrow is missing: make test installs it")
    assert pdegen("export", store, "--format", "huggingface", "--out", "hub").status == 0
    card = Path("hub/README.md").read_text("utf-8")
    Path("recipe.toml").write_text(re.search(r"```toml\n(.*?)```", card, re.S)[1])
    assert load_recipe("recipe.toml").fingerprint == Store(str(store)).raw_attributes["fingerprint"]
    assert "| `viscosity` | The viscosity ν (length²/time). |" in card


def test_a_value_that_is_not_finite_is_answered_with_what_helps(pdegen, tmp_path):
    a = np.random.default_rng(0).random((6, 8))
    a[3, 2] = np.nan
    np.savez("pairs.npz", a=a, u=a)
    words = ["import", "pairs.npz", "--out", "s.zarr", "--input", "a", "--target", "u",
             "--grid", "nodal", "--split", "train=4"]  # fmt: skip
    outcome = pdegen(*words)
    assert outcome.status == 1
    assert outcome.err[-1] == "pdegen: sample 3: a is not finite in the file"
    assert "will fail again: --resume --skip-failed leaves the sample out" in outcome.err[-2]
    assert pdegen(*words, "--resume").status == 1
    assert pdegen(*words, "--resume", "--skip-failed").status == 0
    assert Store("s.zarr").skipped == [3]
