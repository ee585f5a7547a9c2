"""Training at several resolutions: which batch has which, continuation, steps, refusals."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.data import DataError, Samples, open_pairs, read_pairs
from operators.models.fno import FNO
from operators.norms import RelativeL2
from operators.symmetries import TorusSymmetries
from operators.training.fit import Settings, Stopped, fit
from operators.training.step import Acceleration, Step
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Curvilinear

GRIDS = (16, 32)


@pytest.fixture(scope="module")
def pairs(store):
    return read_pairs(store, "train", 32).mixed(*GRIDS)


def predictor(pairs):
    torch.manual_seed(0)
    return Predictor(
        FNO(width=4, depth=1, modes=4, head_width=4),
        Normalizer.pointwise(pairs.a, pairs.points),
        Normalizer.of(pairs.u),
    )


def epoch_of(pairs, epoch, batch=4, **options):
    return list(pairs.batches(3, epoch, batch, **options))


def shapes(batches):
    return [batch.a.shape[1] for batch in batches]


def by_target(batches, points):
    """The input of each sample, by the bytes of its target at `points` points."""
    return {u[:: len(u) // points].numpy().tobytes(): a
            for batch in batches for a, u in zip(batch.a, batch.u, strict=True)}  # fmt: skip


@pytest.mark.parametrize("reading", ["resident", "streamed"])
def test_an_epoch_has_each_sample_once_at_one_resolution(store, reading):
    stored = open_pairs(store, "train", 32).mixed(*GRIDS)
    pairs = stored.resident() if reading == "resident" else stored
    expected = {n: by_target([read_pairs(store, "train", n).all], 16) for n in GRIDS}
    seen = Counter[tuple[bytes, int]]()
    for epoch in range(8):
        batches = epoch_of(pairs, epoch)
        assert Counter(shapes(batches)) == {16: 4, 32: 4}
        samples = by_target(batches, 16)
        assert samples.keys() == expected[16].keys()
        for key, a in samples.items():
            assert torch.equal(a, expected[len(a)][key])
            seen[key, len(a)] += 1
    # 32 samples at two resolutions: each of them in one of eight epochs, but for 2 of 2^8
    assert len(seen) > 58


def test_resolutions_take_turns_if_batches_cannot_be_divided(pairs):
    first, second = (Counter(shapes(epoch_of(pairs, epoch, batch=10))) for epoch in (0, 1))
    assert first + second == {16: 3, 32: 3}


def test_batches_depend_on_seed_and_epoch_alone(pairs):
    whole = epoch_of(pairs, 1)
    for first in (0, 3, 8):
        rest = epoch_of(pairs, 1, first=first)
        assert len(rest) == 8 - first
        for one, other in zip(rest, whole[first:], strict=True):
            assert torch.equal(one.a, other.a)
            assert torch.equal(one.u, other.u)
    orders = {tuple(shapes(epoch_of(pairs, epoch))) for epoch in range(6)}
    assert len(orders) > 1


def test_all_processes_have_the_same_resolution_in_a_step(pairs):
    of_ranks = [shapes(epoch_of(pairs, 0, rank=rank, ranks=2)) for rank in (0, 1)]
    assert of_ranks[0] == of_ranks[1]
    assert set(of_ranks[0]) == set(GRIDS)


def test_an_epoch_of_another_length_is_divided_too(pairs):
    longer = replace(pairs, length=48)
    assert Counter(shapes(epoch_of(longer, 0))) == {16: 6, 32: 6}
    assert shapes(epoch_of(longer, 0, first=5)) == shapes(epoch_of(longer, 0))[5:]


def test_orders_of_resolutions_differ_by_epoch_and_seed(pairs):
    def orders(seed):
        return {tuple(shapes(pairs.batches(seed, epoch, 4))) for epoch in range(8)}

    assert len(orders(3)) > 4
    assert orders(3) != orders(4)


def test_no_resolutions_are_refused(pairs):
    with pytest.raises(ValueError, match="need the resolutions, got none"):
        pairs.mixed()


def test_targets_on_cells_of_their_own_keep_them(plane_store):
    options = {"input": "u", "target": "a", "target_resolution": 4}
    pairs = read_pairs(plane_store, "train", **options).mixed(5, 7)
    by_shape = {b.a.shape[1:3]: b for b in pairs.batches(0, 0, 1)}
    assert set(by_shape) == {(5, 5), (7, 7)}
    assert {b.u.shape[1:3] for b in by_shape.values()} == {(4, 4)}


def test_points_and_statistics_are_those_of_each_resolution(store, pairs):
    model = predictor(pairs)
    for points, n in zip(pairs.batch_points, GRIDS, strict=True):
        alone = read_pairs(store, "train", n)
        assert torch.equal(points, alone.points)
        of_n = Normalizer.pointwise(alone.a, alone.points, eps=0.0)
        eps = 1e-3 * Normalizer.pointwise(pairs.a, pairs.points, eps=0.0).std.square().mean().sqrt()
        torch.testing.assert_close(model.input.at(points), (of_n.mean, of_n.std + eps))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_is_that_of_a_training_at_its_resolution(store, pairs, compiled, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    how, model = Acceleration(compiled=compiled, graphed=compiled), predictor(pairs)
    several = Step(
        model, pairs.x, None, RelativeL2(), 1.0, acceleration=how, grids=pairs.batch_points
    )
    for n in GRIDS:
        alone = read_pairs(store, "train", n)
        single = Step(model, alone.x, None, RelativeL2(), 1.0)
        batch = alone.all[:4]
        losses, gradients = [], []
        for step in (several, single):
            losses.append(step(batch, 0))
            gradients.append([p.grad.clone() for p in step.parameters])
        assert torch.equal(*losses)
        assert all(map(torch.equal, *gradients))
    assert not several.acceleration.graphed


@pytest.mark.parametrize("step", [3, 8, 13])
def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(store, pairs, tmp_path, step):
    test = read_pairs(store, "test", 32)
    settings = Settings(
        loss=RelativeL2(), epochs=2, batch=4, lr=1e-2, seed=3, augment=TorusSymmetries()
    )

    def run(folder, **how):
        return fit(predictor(pairs), pairs, test, settings, folder, {"operator": {}}, **how)

    whole = run(tmp_path / "whole")
    steps = iter(range(1, 100))
    with pytest.raises(Stopped):
        run(tmp_path / "parts", stop=lambda: next(steps) == step)
    torch.manual_seed(99)
    history = run(tmp_path / "parts", resume=True)
    assert [replace(e, seconds=0) for e in history] == [replace(e, seconds=0) for e in whole]
    one, other = (
        (tmp_path / part / "last.safetensors").read_bytes() for part in ("whole", "parts")
    )
    assert one == other
    assert history[-1].loss < history[0].loss


def test_grids_that_do_not_fit_are_refused(store):
    pairs = open_pairs(store, "train", 32)
    with pytest.raises(DataError, match="resolution 12 is not a subsample of the 32 periodic"):
        pairs.mixed(12, 16)
    mesh = Curvilinear.of(np.random.default_rng(0).random((3, 4, 2)))
    values = torch.zeros(2, 3, 4, 1)
    on_mesh = Samples.of(
        a=values, u=values, samples=np.arange(2), x=torch.zeros(3, 4, 2), y=None, domain=mesh,
        source={"url": "a mesh"},
    )  # fmt: skip
    with pytest.raises(DataError, match="need a grid of a box, a mesh has a curvilinear domain"):
        on_mesh.mixed(2, 3)
