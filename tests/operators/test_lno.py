"""LNO against the released code in other words, and what its scores are and are not made of."""

import pytest
import torch

from operators.models.lno import LNO
from tests.operators.drawn import cloud, same_as_copy, shaken
from tests.oracles.plain_lno import PlainLNO

SIZES = {"width": 12, "depth": 2, "heads": 3, "latents": 5, "mlp_depth": 2}


def small(**settings):
    """In float64, with weights of order one, so that every term counts."""
    torch.manual_seed(1)
    return shaken(LNO(**SIZES | settings))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("coordinates", ["raw", "none"])
def test_is_the_released_operator_with_its_gradients(shared, coordinates):
    model = small(in_channels=3, out_channels=2, coordinates=coordinates)
    a, x = cloud(channels=3)
    x = x[:1].expand_as(x) if shared else x
    features = torch.cat([x, a], dim=-1) if coordinates == "raw" else a
    plain = PlainLNO(features.shape[-1], 2, 2, 12, 2, 3, 5, 2).double()
    plain.copy_from(model)
    u, expected = model(a, x[0] if shared else x), plain(x, features)
    same_as_copy(u, expected, model, plain)


def test_is_known_at_points_where_the_input_is_not():
    """Values at some points y do not depend on the others, and at y = x they are those at x."""
    model = small()
    a, x = cloud()
    y = torch.cat([x[:, :4], torch.rand(2, 3, 2, dtype=torch.float64)], dim=1)
    u = model(a, x, y)
    assert u.shape == (2, 7, 1)
    torch.testing.assert_close(u[:, :4], model(a, x)[:, :4])
    torch.testing.assert_close(u[:, 5:6], model(a, x, y[:, 5:6]))
    assert not torch.allclose(u[:, 4], u[:, 5])


def test_places_in_the_grid_stand_for_the_positions_of_a_mesh():
    model, plain = small(indices=True), small()
    a = torch.randn(2, 6, 4, 1, dtype=torch.float64)
    x = torch.rand(2, 6, 4, 2, dtype=torch.float64)
    axes = (torch.arange(6) / 6, torch.arange(4) / 4)
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).double()
    torch.testing.assert_close(model(a, x), plain(a, places))
    with pytest.raises(ValueError, match="y must be None"):
        model(a, x, x)
    assert "cloud" not in model.domains
