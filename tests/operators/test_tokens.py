"""Operators of tokens and slices: shares, noise, waves, places in a grid."""

import math

import pytest
import torch

from operators.models.deeponet import DeepONet
from operators.models.factformer import FactFormer, line
from operators.models.flare import LatentRouting
from operators.models.gnot import normalized
from operators.models.lno import LNO
from operators.models.pit import PiT
from operators.models.transolver import EideticAttention, PhysicsAttention, Transolver, gumbel
from operators.nn.tokens import RandomWaves
from tests.operators.drawn import grid, points, shaken


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (LNO, {"width": 12, "depth": 2, "heads": 3, "latents": 5}),
        (PiT, {"width": 8, "depth": 2, "latent": 8, "encoder_locality": 20.0,
               "decoder_locality": 30.0, "sharpening": False}),
        (DeepONet, {"sensors": 30, "sensor_grid": "points", "basis": 6, "width": 8}),
        (FactFormer, {"width": 16, "depth": 2, "heads": 3, "head_features": 4}),
    ],
)  # fmt: skip
def test_places_in_the_grid_stand_for_positions_where_asked_for(model, settings):
    made = []
    for asked in (True, False):
        torch.manual_seed(0)
        made.append(shaken(model(dim=2, **settings, indices=asked)))
    own, plain = made
    (a, places), anywhere = grid(6, 5), torch.rand(2, 6, 5, 2, dtype=torch.float64)
    torch.testing.assert_close(own(a, anywhere), plain(a, places), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="y must be None"):
        own(a, anywhere, anywhere)


def test_the_matrix_among_points_has_the_rank_of_the_latent_tokens():
    """Its rows sum to 1, as those of two softmaxes in a row do."""
    routing = shaken(LatentRouting(8, 1, 3, 1))
    routing.value = torch.nn.Identity()
    k = torch.randn(8, 8, dtype=torch.float64)
    routing.key = torch.nn.Linear(8, 8, bias=False).double()
    with torch.no_grad():
        routing.key.weight.copy_(k)
        routing.out.weight.copy_(torch.eye(8))
        routing.out.bias.zero_()
        matrix = routing(torch.eye(8, dtype=torch.float64)[None])[0]  # the values are unit vectors
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(8, dtype=torch.float64))
    assert int(torch.linalg.matrix_rank(matrix)) == 3


def test_half_precision_keeps_the_weights_of_many_points():
    """Sums over 4096 points would be beyond the 8 bits of a sum of bfloat16."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 1, n, 8).softmax(-1) for n in (3, 4096))
    v = torch.randn(1, 1, 4096, 8)
    half = normalized(q.bfloat16(), k.bfloat16(), v.bfloat16()).float()
    torch.testing.assert_close(half, normalized(q, k, v), rtol=0, atol=1e-2)


def test_temperature_is_held_within_its_bounds():
    module = shaken(PhysicsAttention(8, 2, 3, (torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))))
    u = torch.randn(1, 6, 8, dtype=torch.float64)
    results = []
    for tau in (-1.0, 0.1, 5.0, 50.0):
        module.temperature.data.fill_(tau)
        results.append(module.weights(u))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[2], results[3])
    assert not torch.allclose(results[1], results[2])


def test_lattice_positions_are_distances_to_its_points():
    p = Transolver(dim=2, depth=1, lattice=3).positions(torch.tensor([[[0.5, 0.25]], [[1.0, 1.0]]]))
    assert p.shape == (2, 1, 9)
    axis = (0.0, 0.5, 1.0)
    expected = [math.hypot(0.5 - s, 0.25 - t) for s in axis for t in axis]
    torch.testing.assert_close(p[0, 0], torch.tensor(expected))
    assert float(p[1, 0, -1]) == 0
    assert Transolver(dim=1, depth=1).positions(points(4)).shape == (4, 8)


def test_slices_of_half_precision_are_summed_in_single():
    model = Transolver(dim=1, width=12, depth=1, heads=3, slices=5).bfloat16()
    assert (
        model.blocks[0].attention.weights(torch.randn(1, 8, 12).bfloat16()).dtype == torch.float32
    )
    a, x = torch.randn(2, 16, 1), points(16, dtype=torch.float32)
    assert model(a.bfloat16(), x.bfloat16()).dtype == torch.bfloat16


def test_noise_has_the_law_of_gumbel():
    torch.manual_seed(0)
    draws = gumbel(torch.zeros(200_000, dtype=torch.float64))
    # deviations: of the mean 0.0029, of the variance 0.0077; five of them
    assert float(draws.mean()) == pytest.approx(0.5772, abs=0.015)
    assert float(draws.var()) == pytest.approx(math.pi**2 / 6, abs=0.04)
    below = (draws < 1).double().mean()
    assert float(below) == pytest.approx(math.exp(-math.exp(-1)), abs=0.006)
    assert bool(gumbel(torch.zeros(1000).bfloat16()).isfinite().all())
    assert gumbel(torch.zeros(2).bfloat16()).dtype == torch.float32


def test_temperature_is_bounded_below_and_belongs_to_the_point():
    attention = shaken(EideticAttention(12, 3, 5)).eval()
    x = torch.randn(1, 3, 2, 4, dtype=torch.float64)
    with torch.no_grad():
        attention.offset.fill_(-5.0)
        cold = attention.weights(x)
        torch.testing.assert_close(cold, (attention.slices(x) / 0.01).softmax(-1))
        attention.offset.fill_(-50.0)
        assert torch.equal(attention.weights(x), cold)
        attention.offset.fill_(1.0)
        warm = attention.weights(x)
    ratio = [
        (attention.slices(x)[0, 0, j].diff() / warm[0, 0, j].log().diff()).mean() for j in (0, 1)
    ]
    expected = (attention.temperature(x) + 1.0)[0, 0, :, 0]
    torch.testing.assert_close(torch.stack(ratio), expected)


def test_queries_are_sines_and_cosines_of_waves_that_are_not_learned():
    torch.manual_seed(0)
    waves = RandomWaves(2, 4000, 3.0)
    # 4000 draws: the deviation of their deviation is 1.1 %
    assert float(waves.waves.std()) == pytest.approx(3, rel=0.05)
    assert not list(waves.parameters())
    assert "waves" in waves.state_dict()
    found = waves(torch.rand(5, 2))
    torch.testing.assert_close(found[:, :2000] ** 2 + found[:, 2000:] ** 2, torch.ones(5, 2000))


def test_coordinates_of_a_line_are_means_over_it():
    x = torch.rand(3, 6, 5, 2, dtype=torch.float64)
    torch.testing.assert_close(line(x, 0), x[..., 0].mean(2)[..., None])
    torch.testing.assert_close(line(x, 1), x[..., 1].mean(1)[..., None])
    torch.testing.assert_close(line(points(6, 5), 1)[:, 0], points(5)[:, 0])
    assert line(x[0, :, 0, :1], 0).shape == (6, 1)
