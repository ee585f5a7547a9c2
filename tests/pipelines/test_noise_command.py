"""The command `pdegen noise`, and what other commands say of its stores."""

from pathlib import Path

import numpy as np
import pytest

from pdegen.generation import derived
from pdegen.store.reading import Store
from tests.pipelines.command import everything


@pytest.mark.parametrize("name", ["burgers", "shards"])
def test_the_other_commands_take_a_store_with_noise(pdegen, request, name):
    parent = request.getfixturevalue(name)
    outcome = pdegen("noise", parent, "--variable", "u", "--levels", "0,0.1", "--out",
                     "noisy.zarr", "--workers", "1")  # fmt: skip
    assert (outcome.status, outcome.out) == (0, ["noisy.zarr"]), outcome.err
    assert "adding noise to u, shards: " in outcome.err[-1]
    clean = Store("noisy.zarr").values("u")[:, 0]
    np.testing.assert_array_equal(clean, Store(str(parent)).values("u"))
    assert pdegen("verify", "noisy.zarr").out == ["noisy.zarr: verified"]
    text = "\n".join(pdegen("info", "noisy.zarr").out)
    for part in ("u with ensemble noise", '"levels": [0.0, 0.1]', "parent      {",
                 '"recipe": "', ", with noise"):  # fmt: skip
        assert part in text
    outcome = pdegen("plot", "noisy.zarr", "--out", "noisy.png")
    assert (outcome.status, outcome.out) == (0, ["noisy.png"]), outcome.err


def test_levels_kind_seed_and_keys_are_as_asked(pdegen, burgers):
    outcome = pdegen("noise", burgers, "--variable", "a", "--level", "0.2", "--level", "0.1",
                     "--kind", "correlated", "--seed", "7", "--set", "length=0.3",
                     "--out", "noisy.zarr")  # fmt: skip
    assert outcome.status == 0, outcome.err
    noise = Store("noisy.zarr").raw_attributes["noise"]
    assert noise["deviation"]
    assert {**noise, "deviation": ""} == {
        "variable": "a", "kind": "correlated", "seed": 7, "length": 0.3, "levels": [0.2, 0.1],
        "deviation": "",
    }  # fmt: skip


def test_interrupted_it_says_how_to_go_on_and_resumes(pdegen, burgers, monkeypatch):
    words = ["noise", burgers, "--variable", "u", "--level", "0.1", "--out", "noisy.zarr",
             "--workers", "1"]  # fmt: skip
    compute = derived.NoiseJob.compute

    def interrupted(self, store, samples):
        if samples.start > 0:
            raise KeyboardInterrupt
        return compute(self, store, samples)

    with monkeypatch.context() as patch:
        patch.setattr(derived.NoiseJob, "compute", interrupted)
        outcome = pdegen(*words)
    assert outcome.status == 130
    kept = "pdegen: interrupted: finished shards are kept in noisy.zarr: continue with --resume"
    assert kept in outcome.err
    assert (
        "not sealed (complete it by pdegen noise ... --resume)"
        in pdegen("info", "noisy.zarr").out[1]
    )
    refusal = pdegen("verify", "noisy.zarr")
    assert (refusal.status, len(refusal.err)) == (2, 1)
    assert "not sealed (1 of 3 shards are written)" in refusal.err[0]
    assert "pdegen noise ... --out noisy.zarr, with --resume" in refusal.err[0]
    assert pdegen(*words, "--resume").status == 0
    assert pdegen("verify", "noisy.zarr").status == 0
    assert pdegen(*words, "--overwrite").status == 0


def test_a_store_that_exists_asks_what_to_do(pdegen, burgers):
    words = ["noise", burgers, "--variable", "u", "--out", "noisy.zarr"]
    assert pdegen(*words, "--level", "0.1").status == 0
    before = everything(Path("noisy.zarr"))
    outcome = pdegen(*words, "--level", "0.1")
    assert outcome.status == 2
    assert "exists and is finished: use it, or --overwrite to replace it" in outcome.err[0]
    outcome = pdegen(*words, "--level", "0.2", "--resume")
    assert outcome.status == 2
    assert "was made with other noise" in outcome.err[0]
    assert everything(Path("noisy.zarr")) == before
