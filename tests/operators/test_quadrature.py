"""Attention whose sums over points have quadrature weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.data import Batch, Map, Rollout, Samples
from operators.models.galerkin import GalerkinTransformer
from operators.nn.attention import FOURIER, GALERKIN, SOFTMAX
from operators.norms import RelativeL2
from operators.training.evaluate import predictions, quadrature_of
from operators.training.step import Step
from operators.transforms import Normalizer, Predictor
from pdegen.domains import Box, Cloud
from tests.operators.drawn import shaken

pytestmark = pytest.mark.usefixtures("shapes")

KINDS = [(GALERKIN, "head"), (FOURIER, "head"), (GALERKIN, "layer"), (GALERKIN, "instance"),
         (FOURIER, "instance")]  # fmt: skip
kinds = pytest.mark.parametrize(("attention", "normalization"), KINDS)
SMALL = {"width": 12, "depth": 2, "heads": 2, "feedforward": 16, "decoder": "pointwise"}


def small(attention=GALERKIN, normalization="head", quadrature=True, **settings):
    torch.manual_seed(1)
    how = {**SMALL, "attention": attention, "normalization": normalization, **settings}
    return shaken(GalerkinTransformer(quadrature=quadrature, **how)).double().eval()


def cloud(n=20, dim=2, batch=3):
    torch.manual_seed(2)
    x = torch.rand(batch, n, dim, dtype=torch.float64)
    return torch.randn(batch, n, 1, dtype=torch.float64), x, torch.rand(batch, n).double() + 0.1


@kinds
@pytest.mark.parametrize("shared", [True, False])
def test_equal_weights_of_any_size_are_none(attention, normalization, shared):
    model = small(attention, normalization, dim=2)
    a, x, _ = cloud()
    x = x[0] if shared else x
    weight = torch.full(a.shape[1:-1] if shared else a.shape[:-1], 0.3, dtype=torch.float64)
    expected = model(a, x)
    torch.testing.assert_close(model(a, x, weight=weight), expected, rtol=1e-11, atol=1e-11)
    plain = small(attention, normalization, dim=2, quadrature=False)
    assert torch.equal(plain(a, x), expected)


@kinds
def test_points_of_half_the_weight_that_are_there_twice_change_nothing(attention, normalization):
    model = small(attention, normalization, dim=2)
    a, x, weight = cloud()
    expected = model(a, x, weight=weight)
    twice = model(*(torch.cat([v, v], 1) for v in (a, x)), weight=torch.cat([weight] * 2, 1) / 2)
    torch.testing.assert_close(twice, torch.cat([expected] * 2, 1), rtol=1e-10, atol=1e-10)
    # twice the weight is the point twice
    again = torch.cat([a, a[:, :5]], 1), torch.cat([x, x[:, :5]], 1)
    doubled = torch.ones(3, 20).double()
    doubled[:, :5] = 2
    torch.testing.assert_close(
        model(a, x, weight=doubled), model(*again)[:, :20], rtol=1e-10, atol=1e-10
    )


def test_attention_is_the_formula():
    """Q Kᵀ W V with trace W = 1, by loops over the points."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 1, 6, 4, dtype=torch.float64)
    weight = torch.rand(2, 6, dtype=torch.float64)
    w = weight / weight.sum(1, keepdim=True)
    for kind, scale in ((GALERKIN, 1.0), (FOURIER, 0.5)):
        found = kind.make(4)(q, k, v, lambda m: m, weight[:, None, :, None])
        for b in range(2):
            rows = [
                scale * sum(w[b, j] * (q[b, 0, i] @ k[b, 0, j]) * v[b, 0, j] for j in range(6))
                for i in range(6)
            ]
            torch.testing.assert_close(found[b, 0], torch.stack(rows), rtol=1e-12, atol=1e-12)


def graded(n, power):
    """Points whose density is that of t^power, their trapezoid weights, and a function there."""
    t = torch.linspace(0, 1, n, dtype=torch.float64)
    x = t**power
    weight = torch.zeros_like(x)
    weight[1:] += x.diff() / 2
    weight[:-1] += x.diff() / 2
    return torch.sin(3 * x)[None, :, None] + x[None, :, None], x[:, None], weight


@kinds
def test_values_on_points_of_any_density_converge_to_the_same(attention, normalization):
    """Of second order, as the trapezoid rule; without weights, to something else."""
    model = small(attention, normalization)

    def at_ends(n, power, weighted=True):
        a, x, weight = graded(n, power)
        with torch.no_grad():
            u = model(a, x, weight=weight if weighted else None)
        return u[0, [0, -1], 0]  # both are points of all grids

    limit = at_ends(20001, 1)
    errors = [float((at_ends(n, 3) - limit).norm()) for n in (401, 801, 1601)]
    assert errors[1] / errors[2] == pytest.approx(4, abs=1)  # norms of a few features are steep
    apart = [float((at_ends(n, 3, weighted=False) - limit).norm()) for n in (401, 1601)]
    assert apart[1] > 20 * errors[2]
    assert apart[1] == pytest.approx(apart[0], rel=0.1)


@kinds
def test_padding_has_no_influence_whatever_its_weight(attention, normalization):
    model = small(attention, normalization, dim=2)
    a, x, weight = cloud()
    mask = torch.arange(20) < torch.tensor([20, 13, 7])[:, None]
    found = model(a, x, None, mask, weight)
    noise = 7 * torch.randn(3, 20, dtype=torch.float64).abs()
    other = model(
        torch.where(mask[..., None], a, noise[..., None]), x, None, mask,
        torch.where(mask, weight, noise),
    )  # fmt: skip
    for one, again, n, i in zip(found, other, (20, 13, 7), range(3), strict=True):
        torch.testing.assert_close(one[:n], again[:n], rtol=1e-12, atol=1e-12)
        alone = model(a[i : i + 1, :n], x[i : i + 1, :n], weight=weight[i : i + 1, :n])[0]
        torch.testing.assert_close(one[:n], alone, rtol=1e-10, atol=1e-10)


def test_weights_of_a_mesh_have_its_axes():
    torch.manual_seed(0)
    model = small(dim=2, decoder="spectral", modes=2, decoder_width=6)
    x = torch.rand(3, 6, 5, 2, dtype=torch.float64)
    a, weight = torch.randn(3, 6, 5, 1).double(), torch.rand(3, 6, 5).double()
    shared = model(a, x[0], weight=weight[0])
    own = model(a, x[:1].expand(3, -1, -1, -1), weight=weight[:1].expand(3, -1, -1))
    torch.testing.assert_close(shared, own, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(shared, model(a, x[0]), rtol=1e-3)


def pairs(weights=True, own=True):
    """Six samples on a cloud, with weights of their own, shared ones, or none."""
    a, x, weight = (v.float() for v in cloud(batch=6))
    told = {"weight": weight} if own and weights else {}
    return Samples.of(
        x=None if own else x[0], y=None, samples=np.arange(6), domain=Cloud((20,), 2),
        source={"url": "s.zarr"}, a=a, u=a.square() + 1, weight=weight[0] if weights else None,
        per_sample={"x": x, **told} if own else {},
    )  # fmt: skip


@pytest.mark.parametrize("own", [True, False])
def test_training_and_evaluation_give_the_weights(own):
    model, data = small(dim=2).float(), pairs(own=own)
    data = replace(data, weight=None) if own else data
    predictor = Predictor(model, Normalizer.identity(1), Normalizer.identity(1), task=Map())
    x, weight = (
        (data.all.per_sample["x"], data.all.per_sample["weight"]) if own else (data.x, data.weight)
    )
    with torch.no_grad():
        expected = model(data.a, x, weight=weight)
    torch.testing.assert_close(predictions(predictor, data, 4), expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(model(data.a, x), expected, rtol=1e-3)
    step = Step(predictor, data.x, None, RelativeL2(), 1.0, weight=data.weight)
    loss = RelativeL2()(expected, data.u, data.a, weight.expand(6, -1))
    torch.testing.assert_close(step(data.all, 0), loss, rtol=1e-5, atol=1e-6)


def test_the_loss_of_every_step_of_a_rollout_has_the_weights():
    model, data = small(dim=2, quadrature=False).float(), pairs(own=False)
    task = Rollout(history=1, steps=2)
    predictor = Predictor(model, Normalizer.identity(1), Normalizer.identity(1), task=task)
    batch = Batch(data.a, torch.cat([data.u, data.u + data.a], dim=-1))
    with torch.no_grad():
        first = model(data.a, data.x)
        second = model(first, data.x)
    frames = ((first, batch.u[..., :1]), (second, batch.u[..., 1:]))
    loss, weight = RelativeL2(), data.weight.expand(6, -1)
    expected, without = (
        torch.stack([loss(p, u, data.a, *w) for p, u in frames]).mean() for w in ((weight,), ())
    )
    found = Step(predictor, data.x, None, loss, 1.0, weight=data.weight)(batch, 0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found, without, rtol=1e-3)


def test_what_has_no_weights_is_refused_in_one_line():
    bare = pairs(weights=False)
    model = small(dim=2)
    with pytest.raises(ValueError, match="quadrature needs weights of the points, but these have"):
        quadrature_of(model, bare.first(), bare)
    assert quadrature_of(small(dim=2, quadrature=False), bare.first(), bare) == {}
    box = replace(bare, domain=Box.cell(5, 4))  # whose points count alike
    assert quadrature_of(model, box.first(), box) == {}
    for attention in (SOFTMAX, None):
        with pytest.raises(ValueError, match="needs attention galerkin or fourier"):
            GalerkinTransformer(attention=attention, quadrature=True)


@pytest.mark.usefixtures("unchecked")
def test_weights_of_another_shape_are_refused():
    a, x, weight = cloud()
    with pytest.raises(ValueError, match=r"weights of shape \(20,\) or \(3, 20\), got \(3, 19\)"):
        small(dim=2)(a, x, weight=weight[:, 1:])
    with pytest.raises(ValueError, match="quadrature weights need quadrature=true"):
        small(dim=2, quadrature=False)(a, x, weight=weight)
