"""Maps, rollouts and states at a time, of synthetic samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.base import Operator
from operators.data import AtTime, Block, Channel, Map, Rollout, Samples, TaskError
from operators.data import samples as batch_module
from operators.norms import RelativeL2, relative_l2
from operators.training.checkpoint import check_fit, load_checkpoint
from operators.training.evaluate import errors, predictions, scores
from operators.training.fit import Settings, Stopped, fit
from operators.training.step import AS_WRITTEN, Step
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Box, Cloud

FRAMES, SAMPLES, POINTS = 6, 5, 8
TIMES = tuple(0.1 * k for k in range(FRAMES))
PARTS = ("p", "q")


class Mixing(Operator):
    """u = W a at each point."""

    dim = 1

    def __init__(self, channels):
        super().__init__()
        self.in_channels, self.out_channels = channels
        self.linear = torch.nn.Linear(*channels)

    def forward(self, a, x, y=None, mask=None):
        return self.linear(a)


def trajectories(**changes):
    """Two components whose frame t of sample i is i + t/10 at all points, plus 1000 for the second;
    the parameter of sample i is i/10."""
    i, t, part = torch.meshgrid(
        torch.arange(SAMPLES), torch.arange(FRAMES), torch.arange(2), indexing="ij"
    )
    u = (i + t / 10 + 1000 * part).flatten(1)[:, None].expand(-1, POINTS, -1).clone()
    names = tuple(Channel("w", part, time) for time in TIMES for part in PARTS)
    content = {
        "a": -torch.arange(SAMPLES)[:, None, None].expand(-1, POINTS, 1) - 1.0, "u": u,
        "x": torch.linspace(0, 1, POINTS)[:, None], "y": None, "samples": np.arange(SAMPLES),
        "domain": Box.nodal(POINTS), "source": {"url": "here", "target": "w"},
        "target_channels": names, "per_sample": {"parameters": torch.arange(SAMPLES)[:, None] / 10},
    }  # fmt: skip
    return Samples.of(**{**content, **changes})


def smooth(frames=FRAMES):
    """A rotation of (p, q), which a matrix learns."""
    angle = 0.5 * torch.arange(frames)[None, None] + torch.rand(24, POINTS, 1)
    u = torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(2)
    names = tuple(Channel("w", part, float(t)) for t in range(frames) for part in PARTS)
    return trajectories(
        u=u,
        a=torch.zeros(24, POINTS, 1),
        samples=np.arange(24),
        target_channels=names,
        per_sample={},
    )


def keys(batches):
    return [
        (tuple(a[0].tolist()), tuple(u[0].tolist()))
        for batch in batches
        for a, u in zip(batch.a, batch.u, strict=True)
    ]


def test_a_map_is_the_samples_themselves_and_parameters_are_further_channels():
    pairs = trajectories()
    assert Map().training(pairs) is Map().evaluation(pairs) is pairs
    found = Map(parameters=True).evaluation(pairs)
    assert found.channels == (2, 2 * FRAMES)
    assert torch.equal(found.a[..., :1], pairs.a)
    assert torch.equal(found.a[3, :, 1], torch.full((POINTS,), 0.3))
    assert Map(parameters=True).training(pairs).first().a.shape == (1, POINTS, 2)
    with pytest.raises(TaskError, match="here: the samples have no parameters"):
        Map(parameters=True).evaluation(pairs.with_reader(per_sample={}))


@pytest.mark.parametrize("pool", [1, 2**28])  # one trajectory after another, or all together
@pytest.mark.parametrize(("history", "steps"), [(1, 1), (2, 1), (2, 3), (1, 5)])
def test_an_epoch_has_every_window_of_every_trajectory_once(monkeypatch, history, steps, pool):
    monkeypatch.setattr(batch_module, "_POOL_BYTES", pool)
    pairs = trajectories()
    found = Rollout(history=history, steps=steps).training(pairs)
    windows = FRAMES - history - steps + 1
    assert len(found) == SAMPLES * windows
    expected = {
        tuple(
            tuple(float(pairs.u[i, 0, 2 * t + part]) for t in times for part in (0, 1))
            for times in (range(s, s + history), range(s + history, s + history + steps))
        )
        for i in range(SAMPLES)
        for s in range(windows)
    }
    for epoch in (0, 1):
        seen = keys(found.batches(0, epoch, 1))
        assert len(seen) == len(set(seen)) == len(expected)
        assert set(seen) == expected
    assert keys(found.in_order(3)) != keys(found.batches(0, 0, 1))
    assert keys(found.sample(k) for k in range(len(found))) == keys(found.in_order(3))
    assert set(keys(found.in_order(3))) == expected
    assert len(next(found.in_order(3))) == 3
    assert found.channels == (2 * history, 2)


@pytest.mark.parametrize("pool", [1, 2**11, 2**28])
@pytest.mark.parametrize("batch", [1, 3, 4])
def test_batches_can_begin_anywhere_and_are_shared_by_ranks(monkeypatch, pool, batch):
    monkeypatch.setattr(batch_module, "_POOL_BYTES", pool)
    found = Rollout(history=2).training(trajectories())
    whole = [keys([one]) for one in found.batches(3, 1, batch)]
    assert len(whole) == len(found) // batch
    assert {len(one) for one in whole} == {batch}
    for first in range(len(whole) + 1):
        assert [keys([one]) for one in found.batches(3, 1, batch, first)] == whole[first:]
    shared = [[keys([one]) for one in found.batches(3, 1, batch, 0, r, 2)] for r in (0, 1)]
    assert [len(one) for one in shared] == [len(found) // 2 // batch] * 2
    assert [one for pair in zip(*shared, strict=True) for one in pair] == whole[
        : 2 * len(shared[0])
    ]


def test_every_pool_of_every_epoch_is_shuffled_on_its_own(monkeypatch):
    monkeypatch.setattr(batch_module, "_POOL_BYTES", 1)  # one trajectory after another
    found = Rollout(history=2).training(trajectories())

    def orders(seed, epoch):
        """The first frames of the windows, trajectory by trajectory, as they come."""
        starts = [round(10 * (a[0] % 1)) for (a, _) in keys(found.batches(seed, epoch, 1))]
        each = FRAMES - 2
        return [tuple(starts[k : k + each]) for k in range(0, len(starts), each)]

    pools = [order for key in ((0, 0), (0, 1), (1, 0)) for order in orders(*key)]
    assert all(sorted(order) == list(range(FRAMES - 2)) for order in pools)
    # of 24 orders, 15 draws have 11.3 +- 1.5 different ones; the seeds are fixed
    assert len(set(pools)) >= 8
    assert all(len(set(orders(*key))) >= 3 for key in ((0, 0), (0, 1), (1, 0)))


def test_static_inputs_and_parameters_stand_beside_the_frames():
    task = Rollout(history=2, static=True, parameters=True)
    found = task.training(trajectories())
    assert found.channels == (2 * 2 + 1 + 1, 2)
    for batch in found.batches(0, 0, 4):
        i = batch.a[:, 0, 0].floor()
        assert torch.equal(batch.a[:, 0, 4], -i - 1)
        torch.testing.assert_close(batch.a[:, 0, 5], i / 10)


def test_a_trajectory_is_evaluated_from_its_first_frames():
    pairs, task = trajectories(), Rollout(history=2)
    found = task.evaluation(pairs)
    assert torch.equal(found.a, pairs.u[..., :4])
    assert torch.equal(found.u, pairs.u[..., 4:])
    assert [c.name for c in found.target_channels[:2]] == ["p, t = 0.2", "q, t = 0.2"]
    assert (len(found), found.channels) == (SAMPLES, (4, 2))
    model = predictor(task, (4, 2))
    with torch.no_grad():
        window, expected = found.a, []
        for _ in range(FRAMES - 2):
            expected.append(model(window, found.x))
            window = torch.cat([window[..., 2:], expected[-1]], dim=-1)
    p = predictions(model, found)
    torch.testing.assert_close(p, torch.cat(expected, dim=-1))
    torch.testing.assert_close(scores(model, found), relative_l2(p.double(), found.u.double()))
    each = errors(model, found, parts=FRAMES - 2)
    assert each.shape == (SAMPLES, FRAMES - 2)
    torch.testing.assert_close(
        each[:, 1], relative_l2(p[..., 2:4].double(), found.u[..., 2:4].double())
    )


def predictor(task, channels, pairs=None):
    torch.manual_seed(0)
    normal = map(Normalizer.identity, channels)
    return Predictor(Mixing(channels), *normal, task=task)


def gradient(task, batch):
    model = predictor(task, (4, 2))
    x = torch.linspace(0, 1, POINTS)[:, None]
    loss = Step(model, x, None, RelativeL2(), 1e9)(batch, seed=0)
    return loss, torch.cat([p.grad.flatten() for p in model.parameters()])


def test_a_training_step_goes_through_the_rollout_with_gradients():
    task = Rollout(history=2, steps=3)
    batch = next(task.training(smooth()).batches(0, 0, 4))
    loss, found = gradient(task, batch)
    model = predictor(task, (4, 2))
    window, each = batch.a, []
    for step in range(3):
        p = model.operator(window, None)
        each.append(relative_l2(p, batch.u[..., 2 * step : 2 * step + 2]).mean())
        window = torch.cat([window[..., 2:], p], dim=-1)
    expected = sum(each) / 3
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(found, torch.cat([p.grad.flatten() for p in model.parameters()]))


def test_teacher_forcing_is_training_on_single_steps():
    forced = Rollout(history=2, steps=3, teacher_forcing=True)
    batch = next(forced.training(smooth()).batches(0, 0, 4))
    frames = torch.cat([batch.a, batch.u], dim=-1)
    singles = [
        replace(batch, a=frames[..., 2 * s : 2 * s + 4], u=frames[..., 2 * s + 4 : 2 * s + 6])
        for s in range(3)
    ]
    loss, found = gradient(forced, batch)
    each = [gradient(Rollout(history=2), one) for one in singles]
    torch.testing.assert_close(loss, torch.stack([one[0] for one in each]).mean())
    torch.testing.assert_close(found, torch.stack([one[1] for one in each]).mean(0))
    free, _ = gradient(replace(forced, teacher_forcing=False), batch)
    assert abs(float(free - loss)) > 1e-3


def test_noise_is_on_the_frames_of_training_steps_alone_and_follows_the_seed():
    task = Rollout(history=2, noise=0.1, static=True)
    a = torch.cat([2 * torch.ones(3, 5000, 4), torch.ones(3, 5000, 1)], dim=-1)
    noisy = task.noisy_inputs(a, 2)
    assert torch.equal(noisy[..., 4:], a[..., 4:])
    assert float((noisy - a)[..., :4].std()) == pytest.approx(0.2, rel=0.02)
    assert task.noisy_inputs(a, 2).ne(noisy)[..., :4].any()
    batch = next(Rollout(history=2).training(smooth()).batches(0, 0, 4))
    quiet, loud = (Rollout(history=2, noise=noise) for noise in (0.0, 0.5))
    assert float(gradient(quiet, batch)[0]) != float(gradient(loud, batch)[0])
    assert float(gradient(loud, batch)[0]) == float(gradient(loud, batch)[0])
    found = quiet.evaluation(smooth())
    assert torch.equal(*(scores(predictor(task, (4, 2)), found) for task in (quiet, loud)))


@pytest.mark.parametrize(
    "task",
    [
        Rollout(history=2, steps=2, noise=0.01),
        AtTime(),
        AtTime(skip=1),
        Block(history=2),
    ],
    ids=["rollout", "time", "later time", "block"],
)
def test_training_is_resumed_to_the_same_bits_and_learns(tmp_path, task):
    pairs = smooth()
    pairs = pairs.with_reader(a=pairs.u[..., :2])
    train, test = task.training(pairs), task.evaluation(pairs)
    settings = Settings(loss=RelativeL2(), epochs=4, batch=8, lr=0.05)

    def of(folder, **options):
        model = predictor(task, train.channels)
        before = float(scores(model, test).mean())
        return before, fit(model, train, test, settings, folder, {"operator": {}}, **options)

    before, whole = of(tmp_path / "whole")
    asked = iter([False] * 9 + [True])
    with pytest.raises(Stopped):
        of(tmp_path / "run", stop=lambda: next(asked))
    _, resumed = of(tmp_path / "run", resume=True)
    assert [(e.loss, e.score) for e in resumed] == [(e.loss, e.score) for e in whole]
    paths = [tmp_path / name / "last.safetensors" for name in ("whole", "run")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert whole[-1].score < before / 2
    loaded, _ = load_checkpoint(paths[0], lambda words: Mixing(train.channels))
    assert loaded.task == task
    check_fit(loaded, test)
    assert float(scores(loaded, test).mean()) == whole[-1].score


def test_a_state_at_a_time_is_asked_for_at_each(tmp_path):
    pairs, task = trajectories(), AtTime()
    train, test = task.training(pairs), task.evaluation(pairs)
    assert (len(train), len(test)) == (SAMPLES * FRAMES, SAMPLES)
    assert train.channels == test.channels == (2, 2)
    seen = set(keys(train.batches(0, 0, 1)))
    assert len(seen) == len(train)
    for (a, t), (p, q) in seen:
        assert p == pytest.approx(-a - 1 + t, abs=1e-5)
        assert q == pytest.approx(p + 1000, abs=1e-3)
    model = predictor(task, (2, 2))
    p = predictions(model, test)
    for k, time in enumerate(TIMES):
        a = torch.cat([pairs.a, torch.full_like(pairs.a, time)], dim=-1)
        torch.testing.assert_close(p[..., 2 * k : 2 * k + 2], model(a, pairs.x).detach())
    assert test.target_channels == pairs.target_channels


def test_a_state_at_a_time_skips_frames():
    pairs, task = trajectories(), AtTime(history=1, skip=2)
    train, test = task.training(pairs), task.evaluation(pairs)
    assert len(train) == SAMPLES * (FRAMES - 3)
    assert train.channels == test.channels == (2 + 1, 2)
    assert torch.equal(test.u, pairs.u[..., 6:])
    assert torch.equal(test.a[..., :2], pairs.u[..., :2])
    assert test.a[0, 0, 2:].tolist() == pytest.approx(TIMES[3:])
    assert test.target_channels == pairs.target_channels[6:]
    for (p, _, t), (later, _) in keys(train.batches(0, 0, 1)):
        assert later == pytest.approx(p + t, abs=1e-5)
        assert t >= TIMES[3]


def test_a_block_has_all_later_frames_at_once():
    pairs, task = trajectories(), Block(history=2, parameters=True)
    train, test = task.training(pairs), task.evaluation(pairs)
    assert (len(train), len(test)) == (SAMPLES, SAMPLES)
    assert train.channels == test.channels == (4 + 1, 2 * FRAMES - 4)
    assert torch.equal(test.a[..., :4], pairs.u[..., :4])
    torch.testing.assert_close(test.a[:, 0, 4], torch.arange(SAMPLES) / 10)
    assert torch.equal(test.u, pairs.u[..., 4:])
    assert test.target_channels == pairs.target_channels[4:]
    assert test.input_channels == pairs.target_channels[:4]
    seen = set(keys(train.batches(0, 0, 1)))
    assert seen == set(keys(test.in_order(1)))
    held = task.persistence(test.a, 2, FRAMES - 2)
    assert torch.equal(held, pairs.u[..., 2:4].repeat(1, 1, FRAMES - 2))
    model = predictor(task, train.channels)
    assert torch.equal(predictions(model, test), model(test.a, test.x).detach())


def test_normalisers_see_one_step_alone_however_many_passes_there_are():
    train = Rollout(history=1, steps=3).training(trajectories())
    targets, passes = (
        torch.cat(list(p.single_step.targets)) for p in (train, replace(train, length=10))
    )
    assert targets.shape == (SAMPLES * (FRAMES - 1), POINTS, 2)
    assert torch.equal(targets, passes)


def test_masks_and_points_of_windows_are_those_of_their_sample():
    pairs = trajectories()
    x, mask = torch.rand(SAMPLES, POINTS, 2), torch.rand(SAMPLES, POINTS) < 0.7
    pairs = pairs.with_reader(per_sample={"x": x, "mask": mask})
    pairs = replace(pairs, x=None, domain=Cloud((POINTS,), 2))
    found = Rollout(history=2).training(pairs)
    assert found.masked
    for samples in (found, replace(found, length=2 * len(found))):
        for batch in samples.batches(0, 0, 3):
            i = batch.a[:, 0, 0].floor().long()
            assert torch.equal(batch.x, x[i])
            assert torch.equal(batch.mask, mask[i])


def test_recorded_steps_of_a_rollout_are_the_steps_as_written():
    task = Rollout(history=2, steps=2, noise=0.1)
    batches = list(task.training(smooth()).batches(0, 0, 8))

    def losses(acceleration):
        model = predictor(task, (4, 2))
        step = Step(model, smooth().x, None, RelativeL2(), 1e9, acceleration=acceleration)
        return [float(step(batch, seed=k)) for k, batch in enumerate(batches)]

    assert losses(replace(AS_WRITTEN, graphed=True)) == losses(AS_WRITTEN)


def test_all_samples_are_evaluated_however_few_are_shuffled_together(monkeypatch):
    pairs = trajectories()
    monkeypatch.setattr(batch_module, "_POOL_BYTES", 3 * pairs.first().nbytes)
    examples = batch_module.Examples(Rollout(), pairs, 0)
    assert len(examples) == sum(map(len, examples.in_order(2))) == SAMPLES


def test_noise_of_a_rollout_has_the_size_of_the_points_that_there_are():
    whole, mask = torch.ones(2, POINTS, 1), torch.arange(POINTS).expand(2, -1) < POINTS // 2
    padded, task = whole * mask[..., None], Rollout(noise=0.1)
    added = []
    for a, there in ((whole, None), (padded, mask)):
        torch.manual_seed(0)
        added.append(task.noisy_inputs(a, 1, there) - a)
    torch.testing.assert_close(*added)
