"""Samples whose points, weights and masks are their own: losses, scores, normalisers, steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.base import Operator
from operators.data import DataError, Samples
from operators.data.samples import quadrature
from operators.norms import RelativeL1, RelativeL2, relative_error, relative_l2
from operators.training.checkpoint import load_checkpoint, saving_checkpoint
from operators.training.evaluate import errors, predictions, scores
from operators.training.step import Step
from operators.transforms import Boundary, Normalizer, Predictor
from pdegen.domains import Box, Cloud, Curvilinear, NodalGrid, PeriodicGrid

COUNTS = (7, 4, 6, 5, 7, 3)


class AtPoints(Operator):
    """u = W [a, x, y], at each point; what padding holds does not matter to other points."""

    in_channels, out_channels, dim = 1, 1, 2

    def __init__(self, channels=(1, 1)):
        super().__init__()
        self.in_channels, self.out_channels = channels
        self.linear = torch.nn.Linear(channels[0] + 2, channels[1])

    def forward(self, a, x, y=None, mask=None):
        assert mask is None or mask.shape == a.shape[:-1]
        return self.linear(torch.cat([a, x.expand(*a.shape[:-1], 2)], dim=-1))


def predictor(channels=(1, 1), **settings):
    torch.manual_seed(0)
    plain = map(Normalizer.identity, channels)
    return Predictor(AtPoints(channels), *plain, **settings)


def clouds(channels=(1, 1), padding=0.0):
    """Clouds of 3 to 7 points, each sample with its own; padding holds a number."""
    draw = torch.Generator().manual_seed(0)
    a, u, x = (torch.randn(6, 7, c, generator=draw) for c in (*channels, 2))
    mask = torch.arange(7) < torch.tensor(COUNTS)[:, None]
    a, u, x = (torch.where(mask[..., None], v, padding) for v in (a, u, x))
    return Samples.of(
        a=a, u=u, x=None, y=None, samples=np.arange(6), domain=Cloud((7,), 2),
        source={"url": "here"}, per_sample={"x": x, "mask": mask},
    )  # fmt: skip


def meshes():
    """A structured mesh whose nodes lie elsewhere in each sample, weights included."""
    draw = torch.Generator().manual_seed(1)
    square = torch.tensor(Box.nodal(4, 5).points, dtype=torch.float32)
    x = square + 0.05 * torch.rand(6, 4, 5, 2, generator=draw)
    domain = Curvilinear((4, 5), 2)
    weight = torch.from_numpy(np.stack([domain.at(v.double().numpy()).weights for v in x])).float()
    a, u = torch.randn(2, 6, 4, 5, 1, generator=draw)
    return Samples.of(
        a=a, u=u, x=None, y=None, samples=np.arange(6), domain=domain, source={"url": "here"},
        per_sample={"x": x, "weight": weight},
    )  # fmt: skip


def one_by_one(pairs, count=None):
    """The samples alone, each without its padding."""
    for i, n in enumerate(COUNTS):
        keep = slice(0, n)
        per_sample = {
            name: v[i : i + 1, keep] for name, v in pairs.all.per_sample.items() if name != "mask"
        }
        alone = pairs.with_reader(
            a=pairs.a[i : i + 1, keep],
            u=pairs.u[i : i + 1, keep],
            per_sample=per_sample,
            samples=pairs.ids[i : i + 1],
        )
        yield replace(alone, domain=Cloud((n,), 2))


def test_batches_have_what_differs_by_sample():
    pairs = clouds()
    for samples in (pairs, replace(pairs, length=12)):
        for batch in samples.batches(0, 0, 2):
            rows = [int((pairs.u == u).flatten(1).all(1).nonzero()[0]) for u in batch.u]
            assert torch.equal(batch.x, pairs.all.x[rows])
            assert torch.equal(batch.mask, pairs.all.mask[rows])
        assert samples.masked
        assert [len(part) for part in samples.in_order(4)] == [4, 2]
        assert samples.first().x.shape == (1, 7, 2)
    with pytest.raises(DataError, match="here: the points differ by sample"):
        _ = pairs.points


@pytest.mark.parametrize("order", [1, 2])
def test_errors_are_those_of_the_formula_with_weights(order):
    p, u = torch.randn(2, 3, 5, 6)
    weight = torch.rand(5)
    found = relative_error(p, u, weight, order, 2)
    for k in range(2):
        part = slice(3 * k, 3 * k + 3)
        norms = [
            (weight[:, None] * v[..., part].abs() ** order).sum((1, 2)) ** (1 / order)
            for v in (p - u, u)
        ]
        torch.testing.assert_close(found[:, k], norms[0] / norms[1])
    loss = {1: RelativeL1, 2: RelativeL2}[order]()
    torch.testing.assert_close(
        loss(p, u, u, weight), relative_error(p, u, weight, order).mean(), rtol=0, atol=0
    )


def test_points_of_equal_weight_have_no_weights_and_the_bits_of_before():
    boxes = Box.cell(3, 4), Box.nodal(5), Box((PeriodicGrid(4), NodalGrid(3, 2.0)))
    for domain in (*boxes, Cloud.of(np.eye(3, 2)), Curvilinear((4, 5), 2)):
        assert quadrature(domain) is None
    p, u = torch.randn(2, 3, 5, 1)
    assert torch.equal(relative_error(p, u)[:, 0], relative_l2(p, u))
    assert torch.equal(RelativeL2()(p, u, u), relative_l2(p, u).mean())


def test_weights_of_a_shared_mesh_are_those_of_its_cells():
    domain = Curvilinear.of(Box.nodal(3, 5).points)
    weight = quadrature(domain)
    assert weight is not None
    assert float(weight.mean()) == pytest.approx(1)
    assert weight[1, 2] == pytest.approx(4 * float(weight[0, 0]))
    pairs = replace(
        meshes().with_reader(per_sample={}), x=torch.rand(4, 5, 2), weight=torch.rand(4, 5)
    )
    found = scores(predictor(), pairs)
    p = predictions(predictor(), pairs)
    expected = relative_error(p.double(), pairs.u.double(), pairs.weight.double())
    torch.testing.assert_close(found, expected[:, 0])
    assert not torch.allclose(found, relative_l2(p, pairs.u).double(), rtol=1e-3)


@pytest.mark.parametrize("padding", [0.0, 1e3])
@pytest.mark.parametrize("order", [1, 2])
def test_padding_changes_no_score(padding, order):
    pairs = clouds(padding=padding)
    found = errors(predictor(), pairs, order=order)
    alone = [errors(predictor(), one, order=order) for one in one_by_one(pairs)]
    torch.testing.assert_close(found, torch.cat(alone))
    if order == 2:
        assert torch.equal(found[:, 0], scores(predictor(), pairs))


def test_padding_changes_neither_loss_nor_gradient():
    def gradient(batch):
        model = predictor()
        loss = Step(model, None, None, RelativeL2(), 1e9)(batch, seed=0)
        return loss, torch.cat([p.grad.flatten() for p in model.parameters()])

    found = gradient(next(clouds(padding=1e3).in_order(6)))
    each = [gradient(one.first()) for one in one_by_one(clouds())]
    for number in range(2):
        mean = torch.stack([one[number] for one in each]).mean(0)
        torch.testing.assert_close(found[number], mean)


def test_padding_does_not_count_in_normalisers():
    pairs = clouds(channels=(2, 1), padding=1e3)
    values = torch.cat([a[:n] for a, n in zip(pairs.a, COUNTS, strict=True)])
    found = Normalizer.of(batch.a[batch.mask] for batch in pairs.in_order(2))
    torch.testing.assert_close(found.mean, values.mean(0))
    torch.testing.assert_close(found.std, values.std(0, correction=0))


def test_a_mesh_of_each_sample_is_scored_by_its_weights():
    pairs, model = meshes(), predictor()
    part = next(pairs.in_order(6))
    p = model(part.a, part.x)
    expected = relative_error(p.double(), part.u.double(), part.weight.double())
    torch.testing.assert_close(scores(model, pairs), expected[:, 0], rtol=1e-6, atol=0)


def test_pointwise_normalisers_of_a_mesh_are_for_its_points():
    a, x = torch.randn(6, 4, 5, 2), torch.rand(4, 5, 2)
    normal = Normalizer.pointwise(a, x, box=False)
    torch.testing.assert_close(normal(a, x).mean(0), torch.zeros(4, 5, 2), atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="needs the points of the training"):
        normal(a, x + 0.1)
    with pytest.raises(ValueError, match="needs points that all samples share"):
        normal.at(None)


@pytest.mark.parametrize(
    ("domain", "values", "known"),
    [
        (Box((PeriodicGrid(4), NodalGrid(3))), [2.0, None], Boundary((2.0, None), (False, True))),
        (Box.nodal(4), [None], None),
        (Box.cell(4), [0.0], None),
        (Box.periodic(4), [0.0], None),
        (Cloud((5,), 2), [0.0], None),
        (Curvilinear((3, 4), 2, None, (True, True)), [0.0], None),
    ],
)
def test_values_are_known_on_the_ends_of_nodal_axes_alone(domain, values, known):
    assert Boundary.of(domain, values) == known


def test_a_checkpoint_keeps_the_boundary_of_a_cloud(tmp_path):
    edge = np.array([True, False, False, True, False])
    boundary = Boundary.of(Cloud((5,), 2, None, None, edge), [0.5])
    model = predictor(boundary=boundary)
    saving_checkpoint(tmp_path / "model.safetensors", model, {"operator": {}})()
    loaded, _ = load_checkpoint(tmp_path / "model.safetensors", lambda words: AtPoints())
    a, x = torch.randn(2, 5, 1), torch.rand(2, 5, 2)
    assert torch.equal(loaded(a, x), model(a, x))
    assert bool((loaded(a, x)[:, edge] == 0.5).all())
    with pytest.raises(ValueError, match="the boundary is known for 5 points"):
        loaded(a[:, :4], x[:, :4])
