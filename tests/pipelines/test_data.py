"""In memory or streamed: which is chosen, that both give the same, and noise in both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from operators.data import Map, Resident, Streamed
from operators.training.fit import Stopped
from operators.transforms import Boundary
from pdegen.domains import Box
from pdegen.schema import SchemaError
from pdegen.store.reading import Store
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.runs import data
from pipelines.runs.checks import boundary_of
from pipelines.runs.data import Source, free_memory
from pipelines.runs.evaluation import evaluate, evaluate_run
from pipelines.runs.finished import MEAN, compare_baselines, read_finished
from pipelines.runs.training import train
from tests.pipelines.conftest import CPU, SMALL_DARCY, in_memory
from tests.stores import resealed, with_attributes

SHARDS = {**SMALL_DARCY, "resolutions": [13], "data.overrides.shard": 3, "training.batch": 4}


@pytest.fixture(scope="module")
def experiment():
    """From noisy u to averages of a: 16 samples in 6 shards to train on, noise fresh."""
    return load_experiment("darcy-inverse-quick").with_overrides(
        {**SHARDS, "data.target_resolution": 5, "noise.level": 0.1}
    )


def read_as(experiment: Experiment, reading: str, **changes: Any) -> Experiment:
    return experiment.with_overrides({"data.reading": reading, **changes})


def by_target(batches: Any) -> dict[bytes, torch.Tensor]:
    """The input of each sample, by the bytes of its target."""
    return {v.numpy().tobytes(): w for b in batches for w, v in zip(b.a, b.u, strict=True)}


def assert_same_inputs(first: dict[bytes, torch.Tensor], second: dict[bytes, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("kind", ["ensemble", "published", "correlated"])
def test_noise_of_a_sample_is_the_same_in_memory_and_streamed(experiment, shards, fresh, kind):
    noise = {"noise.fresh": fresh, "noise.kind": kind}
    resident, streamed = (
        Source(shards, read_as(experiment, reading, **noise)).samples(
            "train", "training", device=CPU
        )
        for reading in ("resident", "streamed")
    )
    assert isinstance(resident.reader, Resident)
    assert isinstance(streamed.reader, Streamed)
    epochs = []
    for epoch in (0, 1):
        found = [
            by_target(p.batches(0, epoch, 1)) for p in (resident, streamed.with_reader(window=2))
        ]
        assert len(found[0]) == 16
        assert_same_inputs(*found)
        epochs += found[:1]
    key = next(iter(epochs[0]))
    assert torch.equal(epochs[0][key], epochs[1][key]) != fresh
    assert_same_inputs(by_target(resident.in_order(4)), by_target(streamed.in_order(4)))
    for one, other in zip(
        *(experiment.normalization.of(pairs) for pairs in (resident, streamed)), strict=True
    ):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=2e-7, atol=0)


@pytest.mark.parametrize("reading", ["resident", "streamed"])
def test_no_epoch_of_fresh_noise_has_the_noise_of_normalisers_and_evaluation(
    experiment, shards, reading
):
    pairs = Source(shards, read_as(experiment, reading)).samples("train", "training", device=CPU)
    fixed = by_target(pairs.in_order(4))
    for epoch in range(3):
        noisy = by_target(pairs.batches(0, epoch, 1))
        assert noisy.keys() == fixed.keys()
        assert not any(torch.equal(noisy[key], fixed[key]) for key in fixed)


def test_noise_has_the_number_of_the_sample_where_others_were_skipped(experiment, shards, tmp_path):
    with_gaps = str(shutil.copytree(shards, tmp_path / "store.zarr"))
    resealed(with_attributes(Store(with_gaps), skipped=[16, 18]))
    noise = {"noise.kind": "relative"}  # of the field alone, not of the training split
    for reading in ("resident", "streamed"):
        wanted = read_as(experiment, reading, **noise)
        whole, gaps = (
            by_target(Source(place, wanted).samples("validation", device=CPU).in_order(2))
            for place in (shards, with_gaps)
        )
        assert (len(whole), len(gaps)) == (4, 2)
        assert all(torch.equal(gaps[key], whole[key]) for key in gaps)


def test_noise_is_refused_for_several_channels(trajectories):
    experiment = Experiment.on_store(trajectories, "galerkin-transformer").with_overrides(
        {"data.input": "u", "data.target": "a"}
    )
    for reading in ("resident", "streamed"):
        with pytest.raises(
            SchemaError, match=r"noise is for inputs with one channel, u of .* has 3"
        ):
            Source(trajectories, read_as(experiment.at_level(0.1), reading)).samples(
                "train", "training", device=CPU
            )


@pytest.mark.parametrize(("share", "kind"), [(7, Resident), (5, Streamed)])
def test_what_fits_is_in_memory(experiment, shards, monkeypatch, share, kind):
    """Three copies of noisy samples in half of the memory."""
    source = Source(shards, experiment)
    need = source.stored("train").reader.nbytes
    assert need == 16 * 4 * (13**2 + 5**2)
    monkeypatch.setattr(data, "free_memory", lambda device: share * need)
    assert type(source.samples("train", "training", device=CPU).reader) is kind
    chosen = Source(shards, read_as(experiment, "resident")).samples(
        "train", "training", device=CPU
    )
    assert type(chosen.reader) is Resident


def test_a_limit_of_the_control_group_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = free_memory(CPU)
    assert unlimited > 10**8
    (tmp_path / "memory.max").write_text("1000\n")
    assert free_memory(CPU) == 0


def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards are shuffled together."""
    original = data.open_pairs
    monkeypatch.setattr(data, "open_pairs", lambda *a, **w: original(*a, **w).with_reader(window=2))


def stopping(step: int) -> Callable[[], bool]:
    steps = iter(range(1, 100))
    return lambda: next(steps) == step


def test_a_streamed_run_is_recorded_and_resumed_as_such(experiment, shards, tmp_path, monkeypatch):
    """With fresh noise, and although more memory is free when it goes on."""
    small_buffer(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(data, "free_memory", lambda device: 0)
        whole = train(experiment, shards, tmp_path / "whole", CPU)
        with pytest.raises(Stopped):
            train(experiment, shards, tmp_path / "parts", CPU, stop=stopping(6))
    recorded = json.loads((tmp_path / "parts" / "run.json").read_text("utf-8"))
    assert recorded["reading"] == "streamed, 2 shards shuffled together"
    assert recorded["experiment"]["data"]["reading"] == "auto"
    parts = train(experiment, shards, tmp_path / "parts", CPU, resume=True)
    assert [replace(e, seconds=0) for e in parts] == [replace(e, seconds=0) for e in whole]
    last = [(tmp_path / name / "last.safetensors").read_bytes() for name in ("whole", "parts")]
    assert last[0] == last[1]
    summary = evaluate_run(experiment, shards, tmp_path / "whole", CPU)
    assert summary["reading"] == recorded["reading"]


def test_a_streamed_run_is_evaluated_and_compared_as_one_in_memory(experiment, shards, tmp_path):
    streamed = read_as(experiment, "streamed")
    train(streamed, shards, tmp_path, CPU)
    summary = evaluate_run(streamed, shards, tmp_path, CPU)
    score = evaluate(tmp_path / "best.safetensors", shards, CPU)
    assert score.samples == (20, 21, 22, 23)
    assert summary["results"][0]["errors"] == list(score.errors)
    run = read_finished(tmp_path, shards, CPU)
    errors = compare_baselines(run)
    model = errors[f"model ({run.checkpoint})"].errors
    np.testing.assert_allclose(model, score.errors, rtol=1e-5)  # another batch in float32
    mean = in_memory(shards, experiment, "train").u.double().mean(dim=0)
    truth = run.pairs.u.double()
    expected = (truth - mean).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
    np.testing.assert_allclose(errors[MEAN].errors, expected, rtol=1e-12)
    assert mean.shape == (5, 5, 1)


# the boundary


def test_values_on_the_boundary_are_those_that_the_store_says(shards, tmp_path):
    """Whatever a variable is called; a store of an earlier version has those of its recipe."""
    forward = load_experiment("darcy-quick").with_overrides(SMALL_DARCY)
    cells = Source(shards, forward).stored("train")
    nodal = replace(cells, domain=Box.nodal(*cells.domain.shape))

    def boundary(name, **changed):
        place = Path(shutil.copytree(shards, tmp_path / name))
        content = json.loads((place / "zarr.json").read_text())
        content["attributes"].pop("physics", None)
        content["attributes"] |= changed
        (place / "zarr.json").write_text(json.dumps(content, indent=2))
        return boundary_of(Source(str(resealed(Store(str(place))).url), forward), nodal)

    zero = Boundary((0.0,), (True, True))
    assert boundary_of(Source(shards, forward), cells) is None
    assert boundary_of(Source(shards, forward), nodal) == zero
    assert boundary("before.zarr") == zero
    assert boundary("free.zarr", recipe={"name": "somebody's"}) is None
    said = boundary("said.zarr", physics={"boundary": {"u": 2.5}}, recipe={"name": "somebody's"})
    assert said == Boundary((2.5,), (True, True))


def test_boundary_values_are_those_of_each_target_whether_or_not_parameters_are_inputs(shards):
    experiment = load_experiment("darcy-quick").with_overrides(
        {**SMALL_DARCY, "task.targets": ["a", "u"]}
    )
    source = Source(shards, experiment)
    stored = source.stored("train").resident()
    stored = replace(stored, domain=Box.nodal(*stored.domain.shape))
    pairs = stored.with_reader(per_sample={"parameters": torch.zeros(len(stored), 1)})
    for task in (Map(), Map(parameters=True)):
        found = boundary_of(source, task.training(pairs))
        assert found == Boundary((None, 0.0), (True, True))
