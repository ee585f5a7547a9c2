"""The plain U-Net against that of the library written out, in float64."""

from functools import partial

import pytest
import torch

from operators.models.unet import PlainUNet
from operators.nn.tokens import Positions
from tests.operators.drawn import points, same, shaken
from tests.oracles.plain_u_fno import plain_unet

nodes = partial(points, kind="nodal")


def small(**settings):
    torch.manual_seed(0)
    return PlainUNet(**{"width": 4} | settings)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("normalization", ["batch", "instance"])
@pytest.mark.parametrize("sizes", [(43,), (32, 48), (21, 29)])
def test_is_the_released_one(sizes, normalization, training):
    dim = len(sizes)
    model = shaken(small(dim=dim, in_channels=2, normalization=normalization)).train(training)
    a, x = torch.randn(3, *sizes, 2, dtype=torch.float64), nodes(*sizes)
    features = torch.cat([a, Positions("lattice", dim)(x).expand(3, *sizes, 8**dim)], -1)
    # sums of numbers of order 1 to 1e3
    same(model(a, x), plain_unet(model, features), model, atol=1e-8)


def test_what_stands_after_the_last_points_is_zero():
    """Of a grid that is filled up the output is that of the grid with these zeros."""
    model = shaken(small(coordinates="none", levels=2)).eval()
    first, _, second = model.lift
    second.bias.data = -(torch.nn.functional.gelu(first.bias) @ second.weight.T).detach()
    a = torch.zeros(1, 8, 8, 1, dtype=torch.float64)  # which the first MLP maps to 0
    a[:, :7, :5] = torch.randn(1, 7, 5, 1, dtype=torch.float64)
    whole, part = (
        model(a, nodes(8, 8)),
        model(a[:, :7, :5], nodes(7, 5)),
    )
    torch.testing.assert_close(part, whole[:, :7, :5], rtol=1e-10, atol=1e-10)
