"""A store with two inputs is trained on, evaluated and reported with both."""

import json
from pathlib import Path

import pytest

from pipelines.config.experiment import load_experiment
from tests.stores import two_input_store

TINY = (
    "--set", "model.width=8", "--set", "model.heads=1",
    "--set", "training.epochs=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return two_input_store(tmp_path_factory.mktemp("two") / "store.zarr")


def test_a_model_on_a_store_is_given_all_its_inputs(pdegen, store):
    done = pdegen("train", "--model", "galerkin-transformer", "--data", store, "--out", "r", *TINY)
    assert (done.status, done.err[0]) == (0, "inputs u0, v -> u")
    config = json.loads(Path("r/run.json").read_text("utf-8"))
    assert config["experiment"]["task"]["inputs"] == ["u0", "v"]
    for words in (
        ("evaluate", "r/best.safetensors", "--data", store),
        ("predict", "r/best.safetensors", "--data", store),
    ):
        done = pdegen(*words)
        assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({}, "inputs u0 -> u (v of the store not used)"),
        ({"kind": "rollout", "history": 2}, "the last frames of u -> u (u0, v of"),
        ({"kind": "rollout", "static": True}, "the last frames of u, u0 -> u (v of"),
        ({"kind": "time"}, "inputs u0 -> u (v of"),
        ({"kind": "block"}, "inputs the first frames of u -> u (u0, v of"),
        ({"kind": "map", "inputs": ["u0", "v"], "parameters": True}, "u0, v, the parameters -> u"),
    ],
)  # fmt: skip
def test_the_map_is_said_in_a_line(store, task, said):
    one = load_experiment("burgers-quick").with_overrides(
        {"data.input": "u0", "training.symmetries.shift": False,
         "training.symmetries.reflection": False}
    )  # fmt: skip
    changed = one.with_overrides({f"task.{k}": v for k, v in task.items()}) if task else one
    assert said in changed.mapped(store)
