"""OFormer against its released code in plain form, and its claims, in float64."""

import pytest
import torch

from operators.models.oformer import OFormer, RotaryAttention, normed
from operators.nn.pointwise import GEGLU
from operators.nn.rotary import RandomWaves, rotated
from tests.operators.drawn import same, shaken
from tests.oracles.plain_oformer import plain_oformer

# the structures of the released scripts, Darcy flow, Burgers, Navier-Stokes
POINTS = {"heads": 2, "scales": [3.0, 1.0], "decoder_scale": 2.0}
RESIDUAL = {
    "heads": 1, "kind": "fourier", "scales": [2.0, 1.0], "layer_norm": False, "beside": True,
    "decoder": "residual", "decoder_depth": 2, "decoder_heads": 3, "decoder_scale": 1.0,
}  # fmt: skip
MARCHING = {"heads": 1, "scales": [3.0, 1.0, 1.0], "decoder": "marching", "decoder_depth": 2}
STRUCTURES = [POINTS, RESIDUAL, MARCHING]


def small(**settings):
    torch.manual_seed(0)
    return OFormer(
        **{"dim": 2, "width": 8, "latent": 12, "resolution": 5.0, "decoder_heads": 2} | settings
    )


def cloud(n=9, dim=2):
    torch.manual_seed(2)
    return torch.rand(n, dim, dtype=torch.float64)


def functions(n=9, channels=1, batch=2):
    torch.manual_seed(3)
    return torch.randn(batch, n, channels, dtype=torch.float64)


@pytest.mark.parametrize("structure", STRUCTURES, ids=["points", "residual", "marching"])
@pytest.mark.parametrize("dim", [1, 2])
def test_is_the_released_operator_written_out_with_its_gradients(structure, dim):
    model = shaken(small(dim=dim, in_channels=2, out_channels=2, **structure)).eval()
    a, x, y = functions(channels=2), cloud(dim=dim), cloud(5, dim)
    same(model(a, x, y), plain_oformer(model, a, x, y), model, rtol=1e-9)


def test_the_norm_is_what_the_released_instance_norm_does_with_points_for_channels():
    u = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    released = torch.nn.InstanceNorm1d(5)(u.flatten(0, 1)).unflatten(0, (2, 3))
    torch.testing.assert_close(normed(u), released)
    over_points = torch.nn.InstanceNorm1d(4)(u.flatten(0, 1).mT).mT.unflatten(0, (2, 3))
    assert not torch.allclose(normed(u), over_points)


@pytest.mark.parametrize("dim", [1, 2])
def test_rotations_keep_lengths_and_see_differences_alone(dim):
    q, k = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (5, 7))
    y, x = cloud(5, dim), cloud(7, dim) + 1
    torch.testing.assert_close(rotated(q, y, 9.0).norm(dim=-1), q.norm(dim=-1))
    products = rotated(q, y, 9.0) @ rotated(k, x, 9.0).mT
    moved = rotated(q, y + 0.3, 9.0) @ rotated(k, x + 0.3, 9.0).mT
    torch.testing.assert_close(products, moved)
    assert not torch.allclose(products, rotated(q, y, 9.0) @ rotated(k, x + 0.3, 9.0).mT)


def test_the_fastest_pair_turns_by_the_rate_and_the_next_ones_slower():
    u = torch.zeros(1, 1, 1, 8, dtype=torch.float64)
    u[..., :2] = 1
    turned = rotated(u, torch.tensor([[0.5]]).double(), 3.0)[0, 0, 0]
    angles = torch.atan2(turned[4:6], turned[:2])
    torch.testing.assert_close(angles, torch.tensor([1.5, 1.5 / 10]).double())


def test_shifts_of_all_points_change_what_reads_coordinates_and_nothing_else():
    model = shaken(small(coordinates="none", **POINTS)).eval()
    a, x = functions(), cloud()
    torch.testing.assert_close(model.encoded(a, x), model.encoded(a, x + 0.7))
    v = torch.cat([a, x.expand(2, -1, -1)], dim=-1)
    model = shaken(small(**POINTS)).eval()
    torch.testing.assert_close(model.encoded(v, x), model.encoded(v, x + 0.7))
    mute = torch.cat([torch.ones(12), torch.zeros(2)])  # what the head sees of y
    model.query.register_forward_pre_hook(lambda _, given: (given[0] * 0,))
    model.end.head.register_forward_pre_hook(lambda _, given: (given[0] * mute,))
    found = model.decoded(v, x, x, None, None)
    torch.testing.assert_close(found, model.decoded(v, x + 0.7, x + 0.7, None, None))
    assert not torch.allclose(found, model.decoded(v, x, x + 0.7, None, None))


def test_marching_reads_each_frame_off_the_state_after_as_many_steps():
    whole = shaken(small(out_channels=6, frame_channels=2, **MARCHING)).eval()
    one = shaken(small(out_channels=2, **MARCHING)).eval()
    one.load_state_dict(whole.state_dict())
    a, x = functions(), cloud()
    u = whole(a, x)
    assert u.shape == (2, 9, 6)
    torch.testing.assert_close(u[..., :2], one(a, x))
    assert not torch.allclose(u[..., :2], u[..., 2:4])
    with pytest.raises(ValueError, match="frames of 2 channels, got 3 channels in all"):
        small(out_channels=3, frame_channels=2, **MARCHING)(a.float(), x.float())


def test_maps_start_near_a_multiple_of_the_identity():
    torch.manual_seed(0)
    self_attention = RotaryAttention(8, 2, "galerkin", 1.0, "q")
    cross = RotaryAttention(8, 2, "fourier", 1.0, "qkv")
    for linear, near in [
        (self_attention.query, True), (self_attention.key, False), (self_attention.value, False),
        (cross.query, True), (cross.key, True), (cross.value, True),
    ]:  # fmt: skip
        for part in linear.weight.detach().chunk(2):
            rest = 8 * part - torch.eye(8)
            assert torch.allclose(rest @ rest.T, torch.eye(8), atol=1e-5) == near
    assert isinstance(RotaryAttention(8, 1, "fourier", 1.0, "v").out, torch.nn.Identity)


def test_queries_are_sines_and_cosines_of_waves_that_are_not_learned():
    torch.manual_seed(0)
    waves = RandomWaves(2, 4000, 3.0)
    # 4000 draws: the deviation of their deviation is 1.1 %
    assert float(waves.waves.std()) == pytest.approx(3, rel=0.05)
    assert not list(waves.parameters())
    assert "waves" in waves.state_dict()
    found = waves(torch.rand(5, 2))
    torch.testing.assert_close(found[:, :2000] ** 2 + found[:, 2000:] ** 2, torch.ones(5, 2000))


def test_a_gated_mlp_multiplies_halves():
    module = shaken(GEGLU(3, 5, 2)).eval()
    u = torch.randn(4, 3, dtype=torch.float64)
    v = u @ module.first.weight.T + module.first.bias
    v = torch.nn.functional.gelu(v[:, :5]) * v[:, 5:]
    torch.testing.assert_close(module(u), v @ module.last.weight.T + module.last.bias)
