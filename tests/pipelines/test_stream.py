"""The solver in the loop: which samples come, their numbers, threads, continuation, refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from operators.data import Batch, Samples, read_pairs
from operators.training.fit import Stopped
from pdegen.domains import PeriodicGrid
from pdegen.equations.base import SampleError
from pdegen.equations.burgers.problem import Burgers
from pdegen.generation.generate import compute
from pdegen.numerics.errors import SolveError
from pdegen.numerics.spectral import Torus
from pdegen.recipe import load_recipe
from pdegen.sampling.gaussian import NormalStream
from pdegen.schema import SchemaError
from pipelines.config.experiment import Experiment, load_experiment
from pipelines.runs.data import SolvedAhead, Source, first_number, solved_pairs
from pipelines.runs.predictions import experiment_key
from pipelines.runs.training import train
from tests.pipelines.command import history
from tests.pipelines.conftest import CPU, DARCY_DATA, DATA, SMALL, SMALL_DARCY, learned

pytestmark = pytest.mark.usefixtures("unpainted")

STREAM = {"data.stream.recipe": "burgers-quick"} | {
    f"data.stream.overrides.{key}": value for key, value in DATA.items() if "." in key
}
STREAM_DARCY = {"data.stream.recipe": "darcy-quick"} | {
    f"data.stream.overrides.{key}": value for key, value in DARCY_DATA.items() if "." in key
}


@pytest.fixture(scope="module")
def experiment():
    """Initial values and solutions on every other of 32 points."""
    return load_experiment("burgers-quick").with_overrides(
        {**SMALL, **STREAM, "training.epochs": 2, "data.epoch_samples": 24, "training.batch": 4}
    )


@pytest.fixture(scope="module")
def inverse():
    """From noisy pressures on 13 x 13 cells to averages of the coefficient over 5 x 5."""
    overrides = {**SMALL_DARCY, **STREAM_DARCY, "data.target_resolution": 5, "noise.level": 0.1}
    return load_experiment("darcy-inverse-quick").with_overrides(overrides)


@pytest.fixture(scope="module")
def inverse_store(darcy):
    return darcy[1]


def of(experiment: Experiment, samples: int = 24, **changes: Any) -> Samples:
    return solved_pairs(experiment, samples, CPU).with_reader(**changes)


def keys(batches: Iterable[Batch]) -> list[list[bytes]]:
    """The bytes of each sample, input and target."""
    return [
        [v.numpy().tobytes() + w.numpy().tobytes() for v, w in zip(b.a, b.u, strict=True)]
        for b in batches
    ]


def flat(lists: Iterable[list[bytes]]) -> list[bytes]:
    return [one for several in lists for one in several]


def test_no_sample_comes_twice(experiment):
    pairs = of(experiment)
    found = [flat(keys(pairs.batches(seed, e, 4))) for seed in (0, 1) for e in range(3)]
    assert [len(one) for one in found] == [24] * 6
    assert len(set(flat(found))) == 6 * 24


@pytest.mark.parametrize("on", [None, "cpu"])
def test_samples_are_those_of_the_recipe_with_numbers_that_no_store_has(experiment, on):
    recipe = experiment.data.stream.load_recipe()
    pairs = of(experiment, on=on)
    for seed, epoch in ((0, 0), (0, 1), (3, 2)):
        batches = list(pairs.batches(seed, epoch, 4))
        a, u = (torch.cat([getattr(b, name) for b in batches]) for name in "au")
        first = (1 + seed) * 2**32 + 24 * epoch
        assert first > recipe.samples
        wanted = compute(recipe, range(first, first + 24), on)
        np.testing.assert_array_equal(a[..., 0], wanted["a"][:, ::2])
        np.testing.assert_array_equal(u[..., 0], wanted["u"][:, ::2])
    assert len(pairs.ids) == 24
    assert pairs.ids[0] == first_number(0, recipe.problem) == 2**32


def test_no_training_and_no_store_share_a_random_stream(monkeypatch):
    """All (seed, number) from which `NormalStream` draws are listed, for u(0) of two components."""
    problem = load_recipe("burgers-2d").problem
    torus, drawn = Torus((PeriodicGrid(64),) * 2, 1), list[tuple[int, int]]()
    initial = problem.initial.model_copy(update={"modes": 4})
    uniforms = NormalStream.uniforms_of

    def noted(self, samples, count, device=None):
        drawn.extend((self.seed, number) for number in samples)
        return uniforms(self, samples, count, device)

    monkeypatch.setattr(NormalStream, "uniforms_of", noted)
    starts = [0, *(first_number(seed, problem) for seed in range(9))]
    for start in starts:  # of a store, and of trainings
        for first in (start, start + 2**32 - 2):  # the least and the largest numbers
            initial.values(torus, 2, 0, range(first, first + 2), None)
    assert len(set(drawn)) == len(drawn) == 2 * 2 * 2 * 10


def test_a_stream_of_two_components_has_numbers_of_its_own():
    changes = {"problem.resolution": 16, "initial.modes": 2, "solver.resolution": 64,
               "initial.sigma": 4.0}  # fmt: skip
    overrides = {f"data.stream.overrides.{key}": value for key, value in changes.items()}
    overrides |= {"data.stream.recipe": "burgers-2d", "data.resolution": 16, "training.batch": 2}
    experiment = load_experiment("darcy-quick").with_overrides(overrides)
    recipe = experiment.data.stream.load_recipe()
    pairs = of(experiment, samples=2)
    assert pairs.source["streams_per_sample"] == 2  # a training of an earlier version is refused
    for seed in (0, 1):
        (batch,) = pairs.batches(seed, 0, 2)
        first = (1 + seed) * 2**33
        expected = compute(recipe, range(first, first + 2))["a"]
        np.testing.assert_array_equal(batch.a.movedim(-1, 1), expected)
    largest = experiment.with_overrides({"training.seed": 2**30 - 1})
    with pytest.raises(SchemaError, match=f"training.seed must be < {2**30 - 1}, got"):
        of(largest)
    last = of(experiment.with_overrides({"training.seed": 2**30 - 2})).ids[-1]
    assert last + 2**32 < 2**63


@pytest.mark.parametrize("target", [None, 5])
def test_functions_are_those_that_a_store_of_the_samples_gives(inverse, inverse_store, target):
    experiment = inverse.with_overrides({"data.resolution": 7})
    if target is None:
        experiment = experiment.model_copy(
            update={"data": experiment.data.model_copy(update={"target_resolution": None})}
        )
    stored = read_pairs(inverse_store, (0, 24), 7, input="u", target="a", target_resolution=target)
    solved = of(experiment, samples=24, block=5)
    assert torch.equal(solved.x, stored.x)
    assert (solved.y is None) == (stored.y is None) == (target is None)
    assert torch.equal(solved.target_points, stored.target_points)
    assert (solved.grid, solved.channels) == (stored.grid, stored.channels)
    solved = solved.with_reader(samples=np.arange(24))  # those of the store
    for one, other in ((solved.inputs, stored.a), (solved.targets, stored.u)):
        assert torch.equal(torch.cat(list(one)), other)
    on_device = solved.with_reader(on="cpu")
    # other solver, same problem: up to its tolerance of 1e-8, in float32
    torch.testing.assert_close(torch.cat(list(on_device.inputs)), stored.a, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(torch.cat(list(on_device.targets)), stored.u)
    assert torch.equal(solved.first().a, stored.a[:1])


@pytest.mark.parametrize(("threads", "block"), [(2, 8), (3, 1000)])
def test_threads_and_blocks_leave_the_samples_unchanged(experiment, threads, block):
    plain = keys(of(experiment, threads=1, block=4).batches(0, 1, 4))
    pairs = of(experiment, threads=threads, block=block)
    for first in range(8):
        assert keys(pairs.batches(0, 1, 4, first)) == plain[first:]


def test_blocks_are_cut_alike_wherever_an_epoch_begins(experiment, monkeypatch):
    solved, original = set(), Burgers.solve

    def watched(self, seed, samples, device=None):
        solved.add(samples)
        return original(self, seed, samples, device)

    monkeypatch.setattr(Burgers, "solve", watched)
    pairs = of(experiment, block=8)
    list(pairs.batches(0, 0, 4))
    whole = set(solved)
    assert len(whole) == 3
    for first in range(1, 7):
        solved.clear()
        list(pairs.batches(0, 0, 4, first))
        assert solved <= whole  # and so they have the same bits on any device
        assert len(solved) == 3 - first // 2


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_share_an_epoch(experiment, ranks):
    pairs = of(experiment, samples=26)
    parts = [flat(keys(pairs.batches(0, 2, 4, rank=r, ranks=ranks))) for r in range(ranks)]
    assert {len(part) for part in parts} == {26 // ranks // 4 * 4}
    assert len(set(flat(parts))) == len(flat(parts))
    assert set(flat(parts)) <= set(flat(keys(pairs.batches(0, 2, 1))))
    with pytest.raises(ValueError, match="rank must be 0 to ranks - 1, got rank 2 of 2"):
        next(pairs.batches(0, 0, 4, rank=2, ranks=2))


def solving() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("solving")]


def test_threads_work_ahead_and_end_with_the_iterator(experiment):
    with closing(of(experiment, threads=2).batches(0, 0, 4)) as batches:
        next(batches)
        assert solving()
    assert not solving()


def test_what_cannot_be_solved_is_raised_with_its_number(experiment, monkeypatch):
    original = Burgers.solve

    def fails(self, seed, samples, device=None):
        if 2**32 + 9 in samples:
            raise SampleError(2**32 + 9, "by hand") from SolveError(0, "by hand")
        return original(self, seed, samples, device)

    monkeypatch.setattr(Burgers, "solve", fails)
    batches = of(experiment, threads=2, block=4).batches(0, 0, 4)
    assert len(next(batches)) == len(next(batches)) == 4
    with pytest.raises(SampleError, match="sample 4294967305: by hand"):
        next(batches)
    assert not solving()


def test_noise_is_that_of_the_store_and_new_for_every_sample(inverse, inverse_store):
    source, clean = Source(inverse_store, inverse), of(inverse, samples=16)
    noisy = source.samples("train", "training", device=CPU)
    assert isinstance(noisy.reader, SolvedAhead)
    assert len(noisy) == 16  # as many as the training split
    sigma = source.std(noisy)
    drawn = []
    for epoch in (0, 1):
        for one, other in zip(noisy.batches(0, epoch, 8), clean.batches(0, epoch, 8), strict=True):
            assert torch.equal(one.u, other.u)
            drawn.append(
                ((one.a - other.a)[..., 0].double().numpy() / (0.1 * sigma)).reshape(8, -1)
            )
    xi = np.concatenate(drawn)
    assert abs(xi.mean()) < 5 / np.sqrt(xi.size)  # standard normal, to five deviations
    assert abs(xi.var() - 1) < 5 * np.sqrt(2 / xi.size)
    correlation = np.corrcoef(xi) - np.eye(len(xi))
    assert np.abs(correlation).max() < 6 / np.sqrt(xi.shape[1])  # the largest of 496
    whole = torch.cat([batch.a for batch in noisy.batches(0, 0, 8)])
    assert torch.equal(torch.cat(list(noisy.inputs)), whole)  # what normalisers see


def test_published_noise_goes_by_the_place_in_the_stream(inverse, inverse_store):
    published = inverse.with_overrides({"noise.kind": "published"})
    source, clean = Source(inverse_store, published), of(inverse, samples=16)
    a, b = (
        next(p.batches(0, 1, 8)).a for p in (source.samples("train", "training", device=CPU), clean)
    )
    sigma, model = source.std(clean), published.noise.build()
    wanted = model.add(b[..., 0].numpy(), published.noise.seed, range(16, 24), sigma)
    np.testing.assert_array_equal(a[..., 0], wanted)


def test_samples_of_a_stream_are_told_the_level_of_their_noise(inverse, inverse_store):
    source = Source(inverse_store, inverse.with_overrides({"noise.level": [0.0, 0.1]}))
    noisy, clean = source.samples("train", "training", device=CPU), of(inverse, samples=16)
    assert noisy.channels == (2, 1)
    sigma, told = source.std(source.stored("train")), list[float]()
    for one, other in zip(noisy.batches(0, 1, 8), clean.batches(0, 1, 8), strict=True):
        noise = (one.a[..., 0] - other.a[..., 0]).double().numpy() / sigma
        s = one.a[:, 0, 0, 1].double().numpy()
        # of 169 normal numbers, to six deviations
        np.testing.assert_allclose(noise.std(axis=(1, 2)), 0.1 * s**2, rtol=0.33, atol=1e-5)
        told += s.tolist()
    assert len(set(told)) == 16


# training


def test_training_that_was_stopped_goes_on_to_the_same_bits(experiment, store, tmp_path):
    asked = iter([False] * 6 + [True])
    train(experiment, store, tmp_path / "whole", CPU)
    with pytest.raises(Stopped):
        train(experiment, store, tmp_path / "run", CPU, stop=lambda: next(asked))
    train(experiment, store, tmp_path / "run", CPU, resume=True)
    one, other = (tmp_path / name / "last.safetensors" for name in ("run", "whole"))
    assert one.read_bytes() == other.read_bytes()
    assert history(tmp_path / "run") == history(tmp_path / "whole")


# subsets and epochs of another length


def test_a_subset_is_the_first_training_samples(store):
    experiment = load_experiment("burgers-quick").with_overrides({**SMALL, "data.samples": 5})
    source = Source(store, experiment)
    assert source.samples("train", "training", device=CPU).ids.tolist() == [0, 1, 2, 3, 4]
    assert len(source.samples("test", noise=None).resident()) == 2
    wanted = experiment.with_overrides({"data.samples": 50})
    with pytest.raises(SchemaError, match=r"data.samples: .* has 20, got 50"):
        learned(store, wanted)


def test_noise_of_tests_does_not_depend_on_the_subset(inverse, inverse_store):
    stored = load_experiment("darcy-inverse-quick").with_overrides(
        {**SMALL_DARCY, "data.target_resolution": 5, "noise.level": 0.1}
    )
    experiments = (stored, stored.with_overrides({"data.samples": 8}), inverse)
    whole, *others = (Source(inverse_store, e).samples("test").resident().a for e in experiments)
    assert all(torch.equal(whole, other) for other in others)


@pytest.mark.parametrize("length", [3, 60])
@pytest.mark.parametrize("reading", ["resident", "streamed"])
def test_epochs_of_any_length_go_on_where_the_one_before_ended(store, length, reading):
    changes = {**SMALL, "data.reading": reading, "training.batch": 3}
    experiment = load_experiment("burgers-quick").with_overrides(changes)
    passes = Source(store, experiment.with_overrides({"data.epoch_samples": length})).samples(
        "train", "training", device=CPU
    )
    assert passes.length
    assert len(passes) == length
    pairs = learned(store, experiment)
    assert len(pairs) % 3  # the last samples of a pass are left out
    wanted = [key for number in range(12) for key in keys(pairs.batches(0, number, 3))]
    found = [keys(passes.batches(0, epoch, 3)) for epoch in range(3)]
    assert {len(epoch) for epoch in found} == {length // 3}
    together = [batch for epoch in found for batch in epoch]
    assert together == wanted[: len(together)]
    for first in range(length // 3 + 1):
        assert keys(passes.batches(0, 2, 3, first)) == found[2][first:]


def test_what_is_kept_of_another_stream_is_stale(experiment, store, monkeypatch):
    """Where a file of the same name holds another recipe."""
    stream, key = experiment.data.stream, experiment_key(experiment, store)
    other = stream.load_recipe().with_overrides({"seed": 7})
    monkeypatch.setattr(type(stream), "load_recipe", lambda self: other)
    assert experiment_key(experiment, store) != key


# what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.stream.recipe": "burgers-quik"}, "unknown recipe 'burgers-quik'"),
        ({"data.stream.overrides.viscosty": 1.0}, "unknown key 'viscosty'"),
        ({"data.stream.overrides.viscosity": -1.0}, "viscosity"),
        ({"data.epoch_samples": 0}, "data.epoch_samples"),
    ],
)
def test_an_impossible_stream_is_refused(experiment, changes, message):
    with pytest.raises(SchemaError, match=message):
        experiment.with_overrides(changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.stream.overrides.times": [0.1, 0.2]}, r"differ: channels \(1, 2\), \(1, 1\)"),
        ({"data.resolution": 15}, "resolution 15 is not a subsample of the 32 periodic points"),
        ({"data.input": "error"}, "error is not a function|has no function 'error'"),
        (
            {"data.epoch_samples": 2, "training.batch": 4},
            "batch 4 is larger than the 2 training samples",
        ),
        ({"training.seed": 2**31}, "training.seed must be <"),
        ({"training.epochs": 2**20, "data.epoch_samples": 2**20}, r"has 2\^32 samples"),
    ],
)
def test_a_stream_that_does_not_fit_is_refused_before_anything_is_written(
    experiment, store, tmp_path, changes, message
):
    with pytest.raises(ValueError, match=message):
        train(experiment.with_overrides(changes), store, tmp_path / "run", CPU)
    assert not (tmp_path / "run").exists()


def test_a_solver_that_cannot_use_the_device_is_refused(inverse):
    published = inverse.with_overrides({"data.stream.overrides.solver.method": "published-splines"})
    with pytest.raises(SchemaError, match=r"stream darcy-quick: .*device 'cuda'"):
        solved_pairs(published, 16, torch.device("cuda"))


def test_samples_are_solved_on_one_thread(inverse, monkeypatch):
    problem, seen = type(inverse.data.load_recipe().problem), list[int]()
    solve = problem.solve

    def watched(*args):
        seen.extend(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")
        return solve(*args)

    monkeypatch.setattr(problem, "solve", watched)
    with threadpool_limits(4):
        list(of(inverse, 4).batches(0, 0, 4))
    assert set(seen) == {1}


# the command line


def test_run_streams_from_the_recipe_to_the_report(pdegen, store, tmp_path):
    sets = {**SMALL, "training.epochs": 2, "training.batch": 4, "data.epoch_samples": 16}
    sets |= {k: v for k, v in STREAM.items() if k != "data.stream.recipe"}
    words = [word for k, v in sets.items() for word in ("--set", f"{k}={json.dumps(v)}")]
    stream = ["--stream", "burgers-quick"]
    outcome = pdegen("run", "burgers-quick", *stream, *words, "--data", store, "--out", "run")
    assert outcome.status == 0, outcome.err
    assert "training samples: solved during training, 16 new ones per epoch" in outcome.err
    text = (tmp_path / "run/report.md").read_text("utf-8")
    assert "* training samples: **32**" in text
    assert "32 solved during training, each used once" in text
    assert "pdegen run burgers-quick --stream burgers-quick --set" in text
