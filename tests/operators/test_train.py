"""Training: exact continuation, selection, averages, scores, refusals.

Schedule, clip, optimizer and average are written out in test_training_written_out.py.
"""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from operators.base import Operator
from operators.data import read_pairs
from operators.models.fno import FNO
from operators.models.galerkin import GalerkinTransformer
from operators.models.galerkin2d import GalerkinTransformer2d
from operators.norms import RelativeH1, RelativeL2, WeightedH1, relative_l2
from operators.symmetries import SquareSymmetries, TorusSymmetries
from operators.training import fit as fit_module
from operators.training.checkpoint import (
    CheckpointError,
    check_fit,
    load_checkpoint,
    saving_checkpoint,
)
from operators.training.evaluate import predictions, scores
from operators.training.fit import (
    Settings,
    Stopped,
    TrainingError,
    _write_history,
    fit,
    read_history,
)
from operators.training.optimizers import SOAP
from operators.transforms import Boundary, Normalizer, Predictor
from pdegen.files import DamagedError, read_lines, write_lines


def build(words=None):
    return GalerkinTransformer(
        width=8, depth=1, feedforward=8, modes=4, decoder_width=6, attention_dropout=0.2
    )


def predictor(operator=None):
    torch.manual_seed(0)
    return Predictor(operator or build(), Normalizer.identity(1), Normalizer.identity(1))


SETTINGS = Settings(
    loss=RelativeH1(), epochs=4, batch=8, lr=3e-3, seed=3, augment=TorusSymmetries(), average=0.9
)
INVERSE = {"latent": "output", "decoder": "pointwise"}
ON_SQUARE = {"epochs": 3, "batch": 4, "augment": SquareSymmetries(), "average": 0.5}


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


@pytest.fixture
def data(train_pairs, test_pairs):
    return train_pairs, test_pairs


def run(data, folder, settings=SETTINGS, model=predictor, **options):
    return fit(model(), *data, settings, folder, {"operator": {}}, **options)


def renewed(pairs):
    """Inputs with noise that is a function of the epoch."""

    def inputs(epoch, device):
        generator = torch.Generator().manual_seed(epoch)
        return pairs.a + 0.1 * torch.randn(pairs.a.shape, generator=generator)

    return pairs.with_reader(epoch_inputs=inputs)


def soap(parameters, lr):
    return SOAP(parameters, lr=lr, every=3)


@pytest.fixture(scope="module")
def uninterrupted(train_pairs, test_pairs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run((train_pairs, test_pairs), folder)


def ends_alike(run, folder, step, names=("last",)):
    """A training stopped after a step and resumed has the files of one that is not."""
    whole = run(folder / "whole")
    steps = iter(range(1, 100))
    with pytest.raises(Stopped, match=f"after step {step}$"):
        run(folder / "parts", stop=lambda: next(steps) == step)
    torch.manual_seed(99)  # whatever the process did in between must not matter
    history = run(folder / "parts", resume=True)
    assert [replace(e, seconds=0) for e in history] == [replace(e, seconds=0) for e in whole]
    for name in names:
        one, other = (
            (folder / part / f"{name}.safetensors").read_bytes() for part in ("whole", "parts")
        )
        assert one == other, name


@pytest.mark.parametrize("step", [1, 4, 6])  # first step, end of an epoch, middle of one
def test_stopped_and_resumed_equals_uninterrupted_bit_for_bit(data, tmp_path, step):
    ends_alike(lambda folder, **how: run(data, folder, **how), tmp_path, step, ("best", "last"))


@pytest.mark.parametrize(
    ("changed", "reading", "step"),
    [
        ({"optimizer": soap, "cycle_momentum": False}, lambda pairs: pairs, 7),
        ({"epochs": 2}, renewed, 6),  # in the middle of the second epoch
    ],
    ids=["soap", "renewed inputs"],
)
def test_resumes_to_the_same_bits(data, tmp_path, changed, reading, step):
    settings, pairs = replace(SETTINGS, **changed), (reading(data[0]), data[1])
    ends_alike(lambda folder, **how: run(pairs, folder, settings, **how), tmp_path, step)


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
    pairs = [read_pairs(plane_store, split, 7, **reading) for split in ("train", "test")]
    settings = Settings(loss=loss, lr=3e-3, **ON_SQUARE)

    def train(folder, **how):
        return run(pairs, folder, settings, lambda: on_square(pairs[0], words), **how)

    ends_alike(train, tmp_path, 5)
    history = read_history(tmp_path / "whole")
    assert history[-1].loss < history[0].loss


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
    selection = train_pairs.with_reader(
        a=train_pairs.a[rows] * size, u=train_pairs.u[rows], samples=torch.arange(53).numpy()
    )
    settings = Settings(loss=RelativeL2(), epochs=1, batch=8)
    (epoch,) = run((train_pairs, selection), tmp_path, settings)
    model, _ = load_checkpoint(tmp_path / "last.safetensors", build)
    with torch.no_grad():
        predicted = model.eval()(selection.a, selection.x)
    alone = relative_l2(predicted, selection.u).tolist()
    assert epoch.score == pytest.approx(sum(alone) / 53, rel=1e-5)
    assert epoch.largest == pytest.approx(max(alone), rel=1e-5)
    assert epoch.score != pytest.approx(sum(alone[:50]) / 100 + sum(alone[50:]) / 6, rel=0.1)


def test_epochs_of_earlier_versions_have_no_largest_error(tmp_path):
    """Their lines are read, and written again with the key of their training."""
    line = {"epoch": 1, "loss": 0.5, "score": 0.4, "lr": 1e-3, "seconds": 2.0}
    write_lines(tmp_path / "history.jsonl", [line])
    (epoch,) = read_history(tmp_path)
    assert epoch.largest is None
    _write_history(tmp_path, [epoch], "key")
    assert read_lines(tmp_path / "history.jsonl") == [{**line, "made_from": "key"}]
    assert read_history(tmp_path, "key") == [epoch]
    with pytest.raises(DamagedError, match=r"history\.jsonl belongs to another result"):
        read_history(tmp_path, "other")


def test_random_numbers_of_a_step_are_a_function_of_seed_and_step(data, tmp_path):
    def drawn(seed, epochs):
        seen = []

        def augment(a, u):
            seen.append(float(torch.rand(())))
            return a, u

        settings = Settings(loss=RelativeL2(), epochs=epochs, batch=8, seed=seed, augment=augment)
        run(data, tmp_path / f"{seed}-{epochs}", settings)
        return seen

    first = drawn(0, 2)
    assert len(set(first)) == len(first)
    assert drawn(0, 3)[: len(first)] == first
    assert not set(drawn(1, 2)) & set(first)


def test_averaged_weights_have_the_buffers_of_the_last_step(data, tmp_path):
    """Batch normalisation counts batches and averages by itself; weights are averaged here."""
    model = predictor(FNO(width=4, depth=1, modes=4, normalization="batch", head_width=4))
    settings = Settings(loss=RelativeL2(), epochs=1, batch=8, average=0.9)
    run(data, tmp_path, settings, lambda: model)
    saved = load_file(tmp_path / "last.safetensors")
    buffers = {name: b for name, b in model.named_buffers() if "running" in name}
    assert len(buffers) == 2
    for name, buffer in buffers.items():
        assert torch.equal(saved[name], buffer)
    averaged = [not torch.equal(saved[name], p) for name, p in model.named_parameters()]
    assert sum(averaged) > len(averaged) / 2


@pytest.mark.parametrize("stops", [(2,), (1, 2)])  # after these steps of the first epoch
def test_seconds_before_stops_are_those_of_the_epoch_that_is_resumed(
    data, tmp_path, monkeypatch, stops
):
    """The clock goes on by a second whenever it is read, and by 100 within the first step."""
    now, asked = [0.0], []

    def read():
        now[0] += 1.0
        return now[0]

    def stopped():
        now[0] += 100.0
        asked.append(1)
        return len(asked) in stops

    monkeypatch.setattr(fit_module.time, "monotonic", read)
    settings = replace(SETTINGS, epochs=3)
    for step in stops:
        with pytest.raises(Stopped):
            run(data, tmp_path, settings, stop=stopped, resume=step != stops[0])
    epoch, *others = run(data, tmp_path, settings, resume=True)
    assert 200.0 <= epoch.seconds < 220.0
    # the seconds before the stops are of that epoch alone
    assert [other.seconds < 20.0 for other in others] == [True, True]


def test_a_loss_that_is_not_finite_ends_training(data, tmp_path):
    settings = Settings(loss=lambda *v: RelativeL2()(*v) * float("nan"), epochs=2)
    with pytest.raises(TrainingError, match="not finite in epoch 1: use a smaller lr"):
        run(data, tmp_path, settings)


def test_a_batch_larger_than_the_data_is_refused(data, tmp_path):
    with pytest.raises(ValueError, match="batch 33 is larger than the 32 training samples"):
        run(data, tmp_path, Settings(loss=RelativeL2(), batch=33))


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"clip": 0.0}, {"average": 1.0}]
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="need "):
        Settings(loss=RelativeL2(), **wrong)


@pytest.mark.parametrize("batch", [1, 5, 12])
def test_scores_are_relative_errors_in_any_batch(plane_store, test_pairs, batch):
    """Without dropout, on another grid of the targets, and where the last batch is not full."""
    pairs = read_pairs(plane_store, "test", 7, input="u", target="a", target_resolution=4)
    for model, samples in ((on_square(pairs, INVERSE), pairs), (predictor(), test_pairs)):
        p = predictions(model, samples, batch=3).double()
        norms = [v.flatten(1).norm(dim=1) for v in (p - samples.u, samples.u.double())]
        # matrix products of another number of rows round differently in float32
        found = scores(model, samples, batch)
        torch.testing.assert_close(found, norms[0] / norms[1], rtol=1e-5, atol=0)
        assert model.training


def test_a_state_of_another_model_is_refused(data, tmp_path):
    once = replace(SETTINGS, epochs=1)
    run(data, tmp_path, once)
    other = predictor(GalerkinTransformer(width=16, modes=4))
    with pytest.raises(CheckpointError, match="belongs to another model"):
        run(data, tmp_path, once, lambda: other, resume=True)


def test_renewed_inputs_are_asked_for_once_an_epoch_and_used(data, tmp_path):
    asked, seen = [], []

    def inputs(epoch, device):
        asked.append(epoch)
        return torch.full_like(data[0].a, float(epoch))

    def loss(p, u, a):
        seen.append(a.unique().tolist())
        return RelativeL2()(p, u, a)

    settings = Settings(loss=loss, epochs=2, batch=16)
    run((data[0].with_reader(epoch_inputs=inputs), data[1]), tmp_path, settings)
    assert asked == [0, 1]
    assert seen == [[0.0], [0.0], [1.0], [1.0]]


def test_the_loss_has_the_input_that_belongs_to_the_target(data, tmp_path):
    """In physical units, in the order of the batch, and moved by the same symmetry."""
    pairs = data[0].with_reader(u=2 * data[0].a)

    def loss(p, u, a):
        assert torch.equal(u, 2 * a)
        return RelativeL2()(p, u, a)

    model = Predictor(build(), Normalizer.of(pairs.a), Normalizer.of(pairs.u))
    settings = Settings(loss=loss, epochs=1, batch=8, augment=TorusSymmetries())
    run((pairs, data[1]), tmp_path, settings, lambda: model)


class Affine(Operator):
    """u(x) = c a(x) + b + x₁, with b and c learnt."""

    in_channels, out_channels, dim = 1, 1, 2

    def __init__(self, words=None):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, a, x, y=None):
        return self.linear(a) + x[..., :1]


def kept(model, path, build):
    """The model after it was written and read."""
    saving_checkpoint(path, model, {"operator": {}})()
    loaded, _ = load_checkpoint(path, build)
    assert loaded.boundary == model.boundary
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    return loaded


@pytest.mark.parametrize("vanishes", [False, True])
def test_checkpoint_keeps_pointwise_normalisers_and_what_vanishes(plane_store, tmp_path, vanishes):
    """Also on a grid that it was not trained on."""
    pairs, finer = (read_pairs(plane_store, "train", n) for n in (7, 13))
    input, target = (Normalizer.pointwise(v, pairs.points) for v in (pairs.a, pairs.u))
    boundary = Boundary((0.0,), (True, True)) if vanishes else None
    model = Predictor(Affine(), input, target, boundary)
    loaded = kept(model, tmp_path / "model.safetensors", Affine)
    for data in (pairs, finer):
        predicted = predictions(loaded, data)
        assert torch.equal(predicted, predictions(model, data))
        assert bool(predicted[:, 0].any()) != vanishes


def test_a_checkpoint_keeps_normalisers_by_node_and_by_channel(tmp_path):
    x = torch.rand(4, 5, 2) + 0.1 * torch.rand(9, 4, 5, 2)
    a, target = x[..., :1], Normalizer(torch.tensor([-0.1]), torch.tensor([0.7]))
    model = Predictor(Affine(), Normalizer.pointwise(a, None), target)
    loaded = kept(model, tmp_path / "model.safetensors", Affine)
    assert torch.equal(loaded(a, x), model(a, x))
    with pytest.raises(ValueError, match="by node needs meshes of 4 x 5 nodes, got 4 x 4"):
        loaded(a[:, :, 1:], x[:, :, 1:])


def test_a_checkpoint_of_data_with_another_dimension_is_refused(plane_store, test_pairs):
    pairs = read_pairs(plane_store, "train", 7)
    check_fit(on_square(pairs), pairs)
    with pytest.raises(CheckpointError, match=r"dimension \(1, 1, 2\), the data \(1, 1, 1\)"):
        check_fit(on_square(pairs), test_pairs)
