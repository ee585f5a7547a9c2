"""Training: schedule, exact continuation, selection, refusals."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from operators.base import Operator
from operators.boundary import Boundary
from operators.data import read_pairs
from operators.models.fno import FNO
from operators.models.galerkin import GalerkinTransformer
from operators.models.galerkin2d import GalerkinTransformer2d
from operators.norms import RelativeH1, RelativeL2, WeightedH1, relative_l2
from operators.symmetries import CircleSymmetries, SquareSymmetries
from operators.training import checkpoint
from operators.training import fit as fit_module
from operators.training.checkpoint import (
    CheckpointError,
    check_fit,
    load_checkpoint,
    saving_checkpoint,
)
from operators.training.evaluate import predictions, scores
from operators.training.fit import Stopped, TrainingError, fit, read_history
from operators.training.settings import Settings
from operators.training.soap import SOAP
from operators.transforms import (
    Normalizer,
    Predictor,
)


def build(words=None):
    return GalerkinTransformer(
        width=8, depth=1, feedforward=8, modes=4, decoder_width=6, attention_dropout=0.2
    )


def predictor():
    torch.manual_seed(0)
    return Predictor(build(), Normalizer.identity(1), Normalizer.identity(1))


SETTINGS = Settings(
    loss=RelativeH1(), epochs=4, batch=8, lr=3e-3, seed=3, augment=CircleSymmetries(), average=0.9
)


def weights(folder, name="last"):
    return load_checkpoint(folder / f"{name}.safetensors", build)[0].state_dict()


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.fixture(scope="module")
def uninterrupted(train_pairs, test_pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    history = fit(predictor(), train_pairs, test_pairs, SETTINGS, folder, {"operator": {}})
    return folder, history


@pytest.mark.parametrize("step", [1, 4, 6])  # first step, end of an epoch, middle of one
def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(
    uninterrupted, train_pairs, test_pairs, tmp_path, step
):
    steps = iter(range(1, 100))
    with pytest.raises(Stopped, match=f"after step {step}$"):
        fit(
            predictor(), train_pairs, test_pairs, SETTINGS, tmp_path, {"operator": {}},
            stop=lambda: next(steps) == step,
        )  # fmt: skip
    torch.manual_seed(99)  # whatever the process did in between must not matter
    history = fit(
        predictor(), train_pairs, test_pairs, SETTINGS, tmp_path, {"operator": {}}, resume=True
    )
    folder, expected = uninterrupted
    for name in ("best", "last"):
        assert_same(weights(tmp_path, name), weights(folder, name))
    assert [replace(e, seconds=0) for e in history] == [replace(e, seconds=0) for e in expected]


def test_resumes_soap_to_the_same_bits(train_pairs, test_pairs, tmp_path):
    settings = replace(
        SETTINGS, optimizer=lambda p, lr: SOAP(p, lr=lr, every=3), cycle_momentum=False
    )

    def run(name, **options):
        return fit(
            predictor(), train_pairs, test_pairs, settings, tmp_path / name, {"operator": {}},
            **options,
        )  # fmt: skip

    run("whole")
    steps = iter(range(1, 100))
    with pytest.raises(Stopped):
        run("parts", stop=lambda: next(steps) == 7)
    run("parts", resume=True)
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_schedule_is_one_cycle_from_and_to_the_specified_ends(
    train_pairs, test_pairs, tmp_path, monkeypatch
):
    """1e-7 -> 1e-3 -> 1e-11, β₁ 0.95 -> 0.85 -> 0.95, peak at 30 % of the steps."""
    seen = []
    step = torch.optim.Adam.step

    def watched(self, *args, **kwargs):
        group = self.param_groups[0]
        seen.append((float(group["lr"]), group["betas"][0]))
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    settings = Settings(loss=RelativeL2(), epochs=10, batch=8)
    fit(predictor(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}})
    lr, beta = zip(*seen, strict=True)
    assert len(lr) == 40
    assert lr[0] == pytest.approx(1e-7, rel=1e-6)
    assert max(lr) == lr[11] == pytest.approx(1e-3, rel=1e-6)  # the 12th of 40 steps
    assert lr[-1] == pytest.approx(1e-11, rel=1e-6)
    assert beta[0] == beta[-1] == pytest.approx(0.95)
    assert min(beta) == beta[11] == pytest.approx(0.85)


def test_best_is_the_epoch_with_the_lowest_selection_score(uninterrupted, test_pairs):
    folder, history = uninterrupted
    best, description = load_checkpoint(folder / "best.safetensors", build)
    lowest = min(history, key=lambda epoch: epoch.score)
    assert description["epoch"] == lowest.epoch
    assert float(scores(best, test_pairs).mean()) == lowest.score
    assert read_history(folder) == history


def test_the_selection_score_is_the_mean_over_samples_not_over_batches(train_pairs, tmp_path):
    """53 samples, which no evaluation in batches of 2 to 52 divides evenly."""
    rows = torch.arange(53) % 7
    size = torch.where(torch.arange(53) < 50, 1.0, 30.0)[:, None, None]
    selection = train_pairs.read_with(
        a=train_pairs.a[rows] * size, u=train_pairs.u[rows], samples=torch.arange(53).numpy()
    )
    settings = Settings(loss=RelativeL2(), epochs=1, batch=8)
    (epoch,) = fit(predictor(), train_pairs, selection, settings, tmp_path, {"operator": {}})
    model, _ = load_checkpoint(tmp_path / "last.safetensors", build)
    with torch.no_grad():
        predicted = model.eval()(selection.a, selection.x)
    alone = relative_l2(predicted, selection.u).tolist()
    assert epoch.score == pytest.approx(sum(alone) / 53, rel=1e-5)
    assert epoch.score != pytest.approx(sum(alone[:50]) / 100 + sum(alone[50:]) / 6, rel=0.1)


def test_random_numbers_of_a_step_are_a_function_of_seed_and_step(
    train_pairs, test_pairs, tmp_path
):
    def drawn(seed, epochs):
        seen = []

        def augment(a, u):
            seen.append(float(torch.rand(())))
            return a, u

        settings = Settings(loss=RelativeL2(), epochs=epochs, batch=8, seed=seed, augment=augment)
        folder = tmp_path / f"{seed}-{epochs}"
        fit(predictor(), train_pairs, test_pairs, settings, folder, {"operator": {}})
        return seen

    first = drawn(0, 2)
    assert len(set(first)) == len(first)
    assert drawn(0, 3)[: len(first)] == first
    assert not set(drawn(1, 2)) & set(first)


def test_averaged_weights_have_the_buffers_of_the_last_step(train_pairs, test_pairs, tmp_path):
    """Batch normalisation counts batches and averages by itself; weights are averaged here."""
    torch.manual_seed(0)
    operator = FNO(width=4, depth=1, modes=4, normalization="batch", head_width=4)
    model = Predictor(operator, Normalizer.identity(1), Normalizer.identity(1))
    settings = Settings(loss=RelativeL2(), epochs=1, batch=8, average=0.9)
    fit(model, train_pairs, test_pairs, settings, tmp_path, {"operator": {}})
    saved = load_file(tmp_path / "last.safetensors")
    buffers = {name: b for name, b in model.named_buffers() if "running" in name}
    assert len(buffers) == 2
    for name, buffer in buffers.items():
        assert torch.equal(saved[name], buffer)
    averaged = [not torch.equal(saved[name], p) for name, p in model.named_parameters()]
    assert sum(averaged) > len(averaged) / 2


def test_seconds_before_a_stop_are_those_of_the_epoch_that_is_resumed(
    train_pairs, test_pairs, tmp_path, monkeypatch
):
    """The clock goes on by a second whenever it is read, and by 100 within the first step."""
    now = [0.0]

    def read():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(fit_module.time, "monotonic", read)
    asked = []

    def stopped():
        now[0] += 100.0
        asked.append(1)
        return len(asked) == 2

    def go(resume, stop=lambda: False):
        settings = replace(SETTINGS, epochs=3)
        of = predictor(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}}
        return fit(*of, resume=resume, stop=stop)

    with pytest.raises(Stopped):
        go(False, stopped)
    epoch, *others = go(True)
    assert 200.0 <= epoch.seconds < 220.0
    # the seconds before the stop are of that epoch alone
    assert [other.seconds < 20.0 for other in others] == [True, True]


def test_the_average_follows_the_first_steps_at_once(train_pairs, test_pairs, tmp_path):
    """The decay of step k is (1 + k)/(10 + k) as long as that is the smaller one."""
    seen = []

    class Watched(torch.optim.Adam):
        def step(self, *args, **kwargs):
            found = super().step(*args, **kwargs)
            seen.append(self.param_groups[0]["params"][0].detach().clone())
            return found

    settings = replace(SETTINGS, epochs=1, average=0.999, optimizer=lambda p, lr: Watched(p, lr=lr))
    model = predictor()
    average = next(model.parameters()).detach().clone()
    fit(model, train_pairs, test_pairs, settings, tmp_path, {"operator": {}})
    for k, current in enumerate(seen, start=1):
        decay = (1 + k) / (10 + k)
        average = decay * average + (1 - decay) * current
    saved, _ = load_checkpoint(tmp_path / "last.safetensors", build)
    torch.testing.assert_close(next(saved.parameters()), average)


def test_training_reduces_the_loss(uninterrupted):
    _, history = uninterrupted
    assert history[-1].loss < 0.9 * history[0].loss


def test_a_loss_that_is_not_finite_ends_training(train_pairs, test_pairs, tmp_path):
    settings = Settings(loss=lambda *v: RelativeL2()(*v) * float("nan"), epochs=2)
    with pytest.raises(TrainingError, match="not finite in epoch 1: use a smaller lr"):
        fit(predictor(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}})


def test_a_batch_larger_than_the_data_is_refused(train_pairs, test_pairs, tmp_path):
    settings = Settings(loss=RelativeL2(), batch=33)
    with pytest.raises(ValueError, match="batch 33 is larger than the 32 samples to train"):
        fit(predictor(), train_pairs, test_pairs, settings, tmp_path, {"operator": {}})


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"warmup": 1.0}, {"average": 1.0}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="need "):
        Settings(loss=RelativeL2(), **wrong)


def test_scores_are_relative_errors_in_any_batch(test_pairs):
    model = predictor().eval()
    p = predictions(model, test_pairs, batch=3).double()
    expected = (p - test_pairs.u).flatten(1).norm(dim=1) / test_pairs.u.double().flatten(1).norm(
        dim=1
    )
    torch.testing.assert_close(scores(model, test_pairs), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("batch", [1, 5, 12])
def test_scores_do_not_depend_on_the_batch(plane_store, batch):
    """Also with targets on another grid, and where the last batch is not full."""
    pairs = read_pairs(plane_store, "test", 7, input="u", target="a", target_resolution=4)
    model = on_square(pairs, INVERSE)
    expected = scores(model, pairs)
    assert expected.shape == (12,)
    # matrix products of another number of rows round differently in float32
    torch.testing.assert_close(scores(model, pairs, batch), expected, rtol=1e-5, atol=0)


def test_two_evaluations_are_bit_equal(test_pairs):
    model = predictor()  # in training mode, with dropout: evaluation must switch it off
    assert torch.equal(scores(model, test_pairs), scores(model, test_pairs))
    assert model.training


def test_checkpoint_keeps_weights_and_normalisers(test_pairs, tmp_path):
    model = Predictor(
        build(), Normalizer(torch.tensor([0.3]), torch.tensor([2.0])),
        Normalizer(torch.tensor([-0.1]), torch.tensor([0.7])),
    )  # fmt: skip
    path = tmp_path / "model.safetensors"
    saving_checkpoint(path, model, {"operator": {"any": "words"}, "epoch": 7})()
    seen = []
    loaded, description = load_checkpoint(path, lambda words: seen.append(words) or build())
    assert seen == [{"any": "words"}] * 2  # for shapes alone, then for the weights
    assert description["epoch"] == 7
    assert_same(loaded.state_dict(), model.state_dict())
    assert torch.equal(scores(loaded, test_pairs), scores(model, test_pairs))


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load_checkpoint(path, build)
    saving_checkpoint(path, predictor(), {"operator": {}})()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="is damaged"):
        load_checkpoint(path, build)
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match="does not fit its description"):
        load_checkpoint(path, lambda words: GalerkinTransformer(width=16))


def test_a_state_of_another_model_is_refused(train_pairs, test_pairs, tmp_path):
    once = replace(SETTINGS, epochs=1)
    fit(predictor(), train_pairs, test_pairs, once, tmp_path, {"operator": {}})
    other = Predictor(
        GalerkinTransformer(width=16, modes=4), Normalizer.identity(1), Normalizer.identity(1)
    )
    with pytest.raises(CheckpointError, match="is of another model"):
        fit(other, train_pairs, test_pairs, once, tmp_path, {"operator": {}}, resume=True)


def renewed(train_pairs):
    """Inputs with noise that is a function of the epoch."""

    def inputs(epoch, device):
        generator = torch.Generator().manual_seed(epoch)
        return train_pairs.a + 0.1 * torch.randn(train_pairs.a.shape, generator=generator)

    return inputs


def test_resumes_with_renewed_inputs_to_the_same_bits(train_pairs, test_pairs, tmp_path):
    settings = replace(SETTINGS, epochs=2)
    pairs = train_pairs.read_with(renewed=renewed(train_pairs))

    def run(name, **options):
        return fit(
            predictor(), pairs, test_pairs, settings, tmp_path / name, {"operator": {}},
            **options,
        )  # fmt: skip

    run("whole")
    steps = iter(range(1, 100))
    with pytest.raises(Stopped):
        run("parts", stop=lambda: next(steps) == 6)  # in the middle of the second epoch
    run("parts", resume=True)
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_renewed_inputs_are_asked_for_once_an_epoch_and_used(train_pairs, test_pairs, tmp_path):
    asked, seen = [], []

    def inputs(epoch, device):
        asked.append(epoch)
        return torch.full_like(train_pairs.a, float(epoch))

    def loss(p, u, a):
        seen.append(a.unique().tolist())
        return RelativeL2()(p, u, a)

    settings = Settings(loss=loss, epochs=2, batch=16)
    pairs = train_pairs.read_with(renewed=inputs)
    fit(predictor(), pairs, test_pairs, settings, tmp_path, {"operator": {}})
    assert asked == [0, 1]
    assert seen == [[0.0], [0.0], [1.0], [1.0]]


def test_the_loss_has_the_input_that_belongs_to_the_target(train_pairs, test_pairs, tmp_path):
    """In physical units, in the order of the batch, and moved by the same symmetry."""
    pairs = train_pairs.read_with(u=2 * train_pairs.a)

    def loss(p, u, a):
        assert torch.equal(u, 2 * a)
        return RelativeL2()(p, u, a)

    model = Predictor(build(), Normalizer.of(pairs.a), Normalizer.of(pairs.u))
    settings = Settings(loss=loss, epochs=1, batch=8, augment=CircleSymmetries())
    fit(model, pairs, test_pairs, settings, tmp_path, {"operator": {}})


INVERSE = {"latent": "output", "decoder": "pointwise"}


def on_square_operator(words):
    small = {"width": 8, "depth": 1, "heads": 2, "feedforward": 8, "modes": 2, "decoder_width": 4,
             "head_width": 4, "latent": 4}  # fmt: skip
    return GalerkinTransformer2d(**small | words)


def on_square(pairs, words=None):
    torch.manual_seed(0)
    return Predictor(
        on_square_operator(words or {}),
        Normalizer.pointwise(pairs.a, pairs.points),
        Normalizer.pointwise(pairs.u, pairs.target_points),
    )


@pytest.mark.parametrize(
    ("reading", "words", "loss"),
    [
        ({}, {}, WeightedH1()),
        ({"input": "u", "target": "a", "target_resolution": 4}, INVERSE, RelativeL2()),
    ],
    ids=["forward", "inverse"],
)
def test_trains_on_a_square_and_resumes_to_the_same_bits(
    plane_store, tmp_path, reading, words, loss
):
    train, test = (read_pairs(plane_store, split, 7, **reading) for split in ("train", "test"))
    settings = Settings(
        loss=loss, epochs=3, batch=4, lr=3e-3, augment=SquareSymmetries(), average=0.5
    )

    def run(name, **options):
        return fit(
            on_square(train, words), train, test, settings, tmp_path / name, {"operator": words},
            **options,
        )  # fmt: skip

    history = run("whole")
    assert history[-1].loss < history[0].loss
    steps = iter(range(1, 100))
    with pytest.raises(Stopped):
        run("parts", stop=lambda: next(steps) == 5)
    run("parts", resume=True)
    whole, parts = (
        load_checkpoint(tmp_path / name / "last.safetensors", on_square_operator)[0]
        for name in ("whole", "parts")
    )
    assert_same(parts.state_dict(), whole.state_dict())
    assert predictions(whole, test).shape == test.u.shape


class Affine(Operator):
    """u(x) = c a(x) + b + x₁, with b and c learnt."""

    in_channels, out_channels, dim = 1, 1, 2

    def __init__(self, words=None):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, a, x, y=None):
        return self.linear(a) + x[..., :1]


@pytest.mark.parametrize("vanishes", [False, True])
def test_checkpoint_keeps_pointwise_normalisers_and_what_vanishes(plane_store, tmp_path, vanishes):
    """Also on a grid that it was not trained on."""
    pairs, finer = (read_pairs(plane_store, "train", n) for n in (7, 13))
    input, target = (Normalizer.pointwise(v, pairs.points) for v in (pairs.a, pairs.u))
    boundary = Boundary((0.0,), (True, True)) if vanishes else None
    model = Predictor(Affine(), input, target, boundary)
    path = tmp_path / "model.safetensors"
    saving_checkpoint(path, model, {"operator": {}})()
    loaded, _ = load_checkpoint(path, Affine)
    assert loaded.boundary == boundary
    assert_same(loaded.state_dict(), model.state_dict())
    for data in (pairs, finer):
        predicted = predictions(loaded, data)
        assert torch.equal(predicted, predictions(model, data))
        assert bool(predicted[:, 0].any()) != vanishes


def test_a_checkpoint_keeps_normalisers_by_node(tmp_path):
    x = torch.rand(4, 5, 2) + 0.1 * torch.rand(9, 4, 5, 2)
    a, u = x[..., :1], torch.randn(9, 4, 5, 1)
    model = Predictor(Affine(), Normalizer.pointwise(a, None), Normalizer.pointwise(u, None))
    saving_checkpoint(tmp_path / "model.safetensors", model, {"operator": {}})()
    loaded, _ = load_checkpoint(tmp_path / "model.safetensors", Affine)
    assert_same(loaded.state_dict(), model.state_dict())
    assert torch.equal(loaded(a, x), model(a, x))
    with pytest.raises(ValueError, match="by node is of meshes of 4 x 5 nodes, got 4 x 4"):
        loaded(a[:, :, 1:], x[:, :, 1:])


def test_a_checkpoint_of_data_with_another_dimension_is_refused(plane_store, test_pairs):
    pairs = read_pairs(plane_store, "train", 7)
    check_fit(on_square(pairs), pairs)
    with pytest.raises(CheckpointError, match=r"dimension \(1, 1, 2\), the data \(1, 1, 1\)"):
        check_fit(on_square(pairs), test_pairs)


def test_a_checkpoint_without_normalisers_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    header = {"sha256": "0" * 64, "operator": {}, "format_version": 2, "boundary": None}
    weights = {f"operator.{k}": v for k, v in build().state_dict().items()}
    checkpoint._write_checkpoint(path, weights, json.dumps(header))
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(path, build)
