"""Operators that take the noise level as an input: in training, tests, commands; refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from operators.data import Resident, Streamed
from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.runs.data import Source
from pipelines.runs.evaluation import evaluate, evaluate_run, predict
from pipelines.runs.training import train
from tests.pipelines.conftest import CPU, SMALL, learned
from tests.pipelines.test_data import SHARDS, assert_same_inputs, by_target, read_as

RANGE = {"noise.level": [0.0, 0.1]}


@pytest.fixture(scope="module")
def experiment():
    """From noisy u and its level to averages of a: 16 samples to train on, noise fresh."""
    return load_experiment("darcy-inverse-quick").with_overrides(
        {
            **SHARDS,
            "training.epochs": 2, "data.target_resolution": 5, **RANGE,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(experiment, shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(experiment, shards, folder, CPU)
    return folder


def plain(experiment: Experiment) -> Experiment:
    return experiment.with_overrides({"noise.level": 0.0})


def assumed_level(a: torch.Tensor) -> torch.Tensor:
    """What each sample says of its level, which all its points say."""
    level = a[..., 1]
    assert torch.equal(level, level[:, :1, :1].expand_as(level))
    return level[:, 0, 0]


# what the operator sees


@pytest.mark.parametrize("reading", ["resident", "streamed"])
def test_each_sample_is_told_the_level_of_its_noise(experiment, shards, reading):
    source = Source(shards, read_as(experiment, reading))
    pairs = source.samples("train", "training", device=CPU)
    assert type(pairs.reader) is (Resident if reading == "resident" else Streamed)
    assert pairs.channels == (2, 1)
    clean = by_target(learned(shards, plain(experiment)).in_order(16))
    sigma = torch.from_numpy(source.std(source.stored("train")))
    seen = list[float]()
    for epoch in (0, 1):
        for target, a in by_target(pairs.batches(0, epoch, 4)).items():
            s = float(assumed_level(a[None])[0])
            noise = (a[..., 0] - clean[target][..., 0]).double() / sigma
            # of 169 normal numbers, to six deviations; float32 for the smallest levels
            assert float(noise.std()) == pytest.approx(0.1 * s**2, rel=6 / np.sqrt(338), abs=1e-5)
            seen.append(s)
    assert len(set(seen)) == 32  # other levels in the other epoch
    assert 0 <= min(seen) < 0.3
    assert 0.7 < max(seen) <= 1


@pytest.mark.parametrize("changes", [{}, {"noise.fresh": False}, {"noise.kind": "published"}])
def test_levels_are_the_same_in_memory_and_streamed(experiment, shards, changes):
    resident, streamed = (
        Source(shards, read_as(experiment, reading, **changes))
        for reading in ("resident", "streamed")
    )
    one, other = (
        resident.samples("train", "training", device=CPU),
        streamed.samples("train", "training", device=CPU),
    )
    for epoch in (0, 1):
        assert_same_inputs(
            by_target(one.batches(0, epoch, 4)), by_target(other.batches(0, epoch, 4))
        )
    assert_same_inputs(by_target(one.in_order(4)), by_target(other.in_order(4)))
    kept = [by_target(one.batches(0, epoch, 4)) for epoch in (0, 1)]
    same = all(torch.equal(kept[0][key], kept[1][key]) for key in kept[0])
    assert same == ("noise.fresh" in changes)
    first, second = (source.samples("test", device=CPU) for source in (resident, streamed))
    assert_same_inputs(by_target(first.in_order(4)), by_target(second.in_order(4)))
    torch.testing.assert_close(other.sample(2).a, next(other.in_order(16)).a[2:3], rtol=0, atol=0)


@pytest.mark.parametrize("level", [0.0, 0.025, 0.4])
def test_tested_at_a_level_all_samples_have_and_know_it(experiment, shards, level):
    """Also beyond the range. The noise has the bits of a model that is not told."""
    found = Source(shards, experiment, at=level).samples("test").resident().a
    alone = Source(shards, experiment.at_level(level)).samples("test").resident().a
    assert torch.equal(found[..., :1], alone)
    np.testing.assert_allclose(assumed_level(found), np.sqrt(level / 0.1), rtol=1e-7)


# training and commands


def test_a_checkpoint_is_told_the_level_that_is_asked_for(shards, trained):
    """The same data, another answer; what is true is told by default."""
    best = trained / "best.safetensors"
    found = [
        evaluate(best, shards, CPU, level=0.05, assumed_level=level) for level in (None, 0.05, 0.1)
    ]
    assert found[0].errors == found[1].errors
    assert found[0].errors != found[2].errors
    assert found[0].errors != evaluate(best, shards, CPU, level=0.01).errors


def test_predictions_take_the_level_and_say_what_was_told(shards, trained, tmp_path):
    def predicted(name, **asked):
        found = predict(trained / "best.safetensors", shards, tmp_path / name, CPU, **asked)
        return xr.open_zarr(found.out).load()

    true, wrong = predicted("true", level=0.0), predicted("wrong", level=0.0, assumed_level=0.1)
    again, as_trained = predicted("again", level=0.0, assumed_level=0.0), predicted("trained")
    assert np.isfinite(true.a).all()
    assert not np.array_equal(true.a, wrong.a)
    assert np.array_equal(true.a, again.a)
    assert as_trained.attrs["noise"] == {"kind": "ensemble", "level": [0.0, 0.1], "seed": 0,
                                         "fresh": True}  # fmt: skip
    assert "assumed_level" not in as_trained.attrs
    assert (wrong.attrs["noise"]["level"], wrong.attrs["assumed_level"]) == (0.0, 0.1)
    assert wrong.attrs["experiment"]["noise"]["level"] == [0.0, 0.1]


def test_scores_say_their_noise_and_what_was_told(shards, trained, pdegen):
    outcome = pdegen("evaluate", trained / "best.safetensors", "--data", shards, "--noise", "0.05",
                     "--assumed-level", "0.1", "--out", "scores.json")  # fmt: skip
    kept = json.loads(Path("scores.json").read_text())
    assert (outcome.status, kept["noise"], kept["assumed_level"]) == (0, 0.05, 0.1)


def test_the_state_that_is_held_has_no_level(store, tmp_path):
    """The identity is a prediction of the noisy state alone."""
    found = {}
    for name, level in (("one", 0.05), ("range", [0.0, 0.05])):
        quiet = load_experiment("burgers-quick").with_overrides(
            {**SMALL, "training.symmetries.reflection": False, "training.epochs": 1}
        )
        declared = quiet.at_level(0.0).with_overrides({"noise.level": level})
        train(declared, store, tmp_path / name, CPU)
        summary = evaluate_run(declared, store, tmp_path / name, CPU)
        found[name] = {one["checkpoint"]: one["mean"] for one in summary["trivial"]}
    assert found["one"].keys() == found["range"].keys() == {"mean", "identity"}
    # noise of 0.05 changes the error of the identity by less
    assert found["one"]["identity"] == pytest.approx(found["range"]["identity"], abs=0.05)


# refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise.level": [0.1, 0.0]}, r"noise.level: a range of levels has 0 <= low < high, got"),
        ({"noise.level": [0.05]}, r"noise.level: a range of levels must be \[low, high\], got"),
        ({"noise.level": [0, "a"]}, r"noise.level: the ends of a range of levels must be numbers"),
        ({"noise.level": "low"}, r"noise.level: must be a finite number or a range .*, got 'low'"),
        ({"noise.kind": "snr"}, r"noise: snr takes one level in decibels and no range"),
        ({"training.symmetries.square": False, "training.symmetries.reflection": True},
         r"reflection changes the sign of all inputs, the noise level among them"),
    ],
)  # fmt: skip
def test_impossible_declarations_are_refused(experiment, changes, message):
    with pytest.raises(SchemaError, match=message) as error:
        experiment.with_overrides(changes)
    assert "\n" not in str(error.value)


def test_an_operator_that_is_not_told_refuses_to_be(experiment, shards, trained, tmp_path):
    with pytest.raises(
        SchemaError, match=r"assumed level 0.1: .* takes no noise level as an input"
    ):
        Source(shards, plain(experiment), assumed_level=0.1)
    with pytest.raises(
        SchemaError, match=r"the assumed noise level must be finite and >= 0, got -1"
    ):
        evaluate(trained / "best.safetensors", shards, CPU, assumed_level=-1.0)
    with pytest.raises(SchemaError, match=r"the level of ensemble noise must be >= 0, got -1"):
        evaluate(trained / "best.safetensors", shards, CPU, level=-1.0)


# values that are missing


def test_operators_get_the_mask_of_present_values(experiment, shards, tmp_path):
    missing = experiment.with_overrides({"noise.kind": "missing", "noise.level": 0.1})
    source = Source(shards, missing)
    pairs = source.samples("train", "training", device=CPU)
    assert pairs.channels == (2, 1)
    masks = [torch.cat([b.a for b in pairs.batches(0, epoch, 4)])[..., 1] for epoch in (0, 1)]
    (a,) = pairs.batches(0, 0, 16)
    assert torch.equal(a.a[..., 1], (a.a[..., 0] != 0).float())
    # five deviations of the share of 16 x 169 values
    assert float(masks[0].mean()) == pytest.approx(0.7, abs=5 * 0.46 / np.sqrt(16 * 169))
    assert not torch.equal(*masks)
    clean = source.samples("test", noise=None).resident().a
    assert clean.shape[-1] == 2
    assert (clean[..., 1] == 1).all()
    other = experiment.with_overrides({"noise.kind": "student", "noise.level": 0.1}).noise
    assert (source.samples("test", noise=other).resident().a[..., 1] == 1).all()
    with_level = Source(shards, missing.with_overrides(RANGE)).samples("test").resident().a
    assert with_level.shape[-1] == 3
    short = missing.with_overrides({"training.epochs": 1})
    train(short, shards, tmp_path / "run", CPU)
    assert evaluate_run(short, shards, tmp_path / "run", CPU)["results"]
