"""OFormer against its released code in plain form, and its claims, in float64."""

import pytest
import torch

from operators.models.oformer import OFormer
from operators.nn.rotary import RandomWaves
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


def test_queries_are_sines_and_cosines_of_waves_that_are_not_learned():
    torch.manual_seed(0)
    waves = RandomWaves(2, 4000, 3.0)
    # 4000 draws: the deviation of their deviation is 1.1 %
    assert float(waves.waves.std()) == pytest.approx(3, rel=0.05)
    assert not list(waves.parameters())
    assert "waves" in waves.state_dict()
    found = waves(torch.rand(5, 2))
    torch.testing.assert_close(found[:, :2000] ** 2 + found[:, 2000:] ** 2, torch.ones(5, 2000))
