"""FactFormer against its released code in plain form, and its claims, in float64."""

import pytest
import torch

from operators.models.factformer import FactFormer, line
from tests.operators.drawn import same, shaken
from tests.oracles.plain_factformer import plain_factformer


def small(**settings):
    torch.manual_seed(0)
    return FactFormer(
        **{"dim": 2, "width": 16, "depth": 2, "heads": 3, "head_features": 4} | settings
    )


def axes():
    return torch.arange(6).double() / 5, torch.arange(5).double() / 5


def grid():
    return torch.stack(torch.meshgrid(*axes(), indexing="ij"), dim=-1)


def functions(channels=1):
    torch.manual_seed(3)
    return torch.randn(2, 6, 5, channels, dtype=torch.float64)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"normalization": "heads", "multiplier": 6},
        {"decoder": "marching"},
        {"decoder": "marching", "frame_channels": 1},
    ],
)
def test_is_the_released_operator_written_out_with_its_gradients(settings):
    model = shaken(small(in_channels=2, out_channels=2, **settings))
    a = functions(2)
    same(model(a, grid()), plain_factformer(model, a, *axes(), heads=3), model, rtol=1e-8)


def test_coordinates_of_a_line_are_means_over_it():
    x = torch.rand(3, 6, 5, 2, dtype=torch.float64)
    torch.testing.assert_close(line(x, 0), x[..., 0].mean(2)[..., None])
    torch.testing.assert_close(line(x, 1), x[..., 1].mean(1)[..., None])
    torch.testing.assert_close(line(grid(), 1)[:, 0], axes()[1])
    assert line(x[0, :, 0, :1], 0).shape == (6, 1)


def test_with_indices_the_points_may_lie_anywhere():
    model, a = shaken(small(indices=True)), functions()
    assert torch.equal(model(a, grid()), model(a, torch.rand_like(grid())))
    plain = shaken(small())
    torch.testing.assert_close(
        model(a, grid()), plain(a, grid() * torch.tensor([5 / 6, 1.0], dtype=torch.float64))
    )


def test_marching_reads_each_frame_off_the_state_after_as_many_steps():
    model = shaken(small(out_channels=6, frame_channels=2, decoder="marching"))
    u = model(functions(), grid())
    assert u.shape == (2, 6, 5, 6)
    one = shaken(small(out_channels=2, decoder="marching"))
    one.load_state_dict({**model.state_dict(), "end.times": model.end.times[:1]})
    torch.testing.assert_close(u[..., :2], one(functions(), grid()))
    with pytest.raises(ValueError, match="frames of 2 channels, got 3 channels in all"):
        small(out_channels=3, frame_channels=2, decoder="marching").double()(functions(), grid())
