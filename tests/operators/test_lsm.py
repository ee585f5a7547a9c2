"""LSM against the released library in our own words, in float64."""

import pytest
import torch

from operators.models.lsm import LSM, SpectralBlock
from tests.operators.drawn import shaken
from tests.oracles.plain_lsm import block_of_patch, plain_lsm

VARIANTS = {
    "square": {"normalization": "batch"},
    "instance": {"normalization": "instance", "out_channels": 2},
    "line": {"dim": 1, "levels": 4, "patches": 8},
    "latent": {"latent": 12, "modes": 4, "transform": "sum", "deformation_width": 8},
}
variants = pytest.mark.parametrize("variant", VARIANTS)


def small(**settings):
    torch.manual_seed(0)
    chosen = {"width": 8, "levels": 3, "patches": 4, "heads": 2, "tokens": 3, "basis": 5}
    return LSM(**chosen | settings)


def some(variant, batch=3):
    torch.manual_seed(2)
    grid = {"latent": (23,), "line": (19,)}.get(variant, (13, 12))  # the second is full
    dim = VARIANTS[variant].get("dim", 2)
    x = torch.rand(batch, *grid, dim, dtype=torch.float64)
    return torch.randn(batch, *grid, 1, dtype=torch.float64), x


def outcomes(model, output):
    return output, *torch.autograd.grad(output.square().sum(), list(model.parameters()))


@variants
def test_is_the_released_operator_written_out(variant):
    model, (a, x) = shaken(small(**VARIANTS[variant])), some(variant)
    found, expected = outcomes(model, model(a, x)), outcomes(model, plain_lsm(model, a, x))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "released"),
    # as counted in the released library; what it has besides is subtracted
    [
        ("darcy", 19_195_969),
        ("navier-stokes", 19_197_121),
        ("airfoil", 4_812_769),
        ("pipe", 4_812_769),
        ("elasticity", 6_056_163 - (42 * 32 + 32)),
        ("plasticity", 4_815_140 - 2 * (32 * 32 + 32) - 2 * 65 + 64),
    ],
)
def test_presets_have_the_parameters_of_the_released_library(name, released):
    preset = LSM.presets[name]
    c_in, c_out = preset.channels
    with torch.device("meta"):
        model = LSM(in_channels=c_in, out_channels=c_out, **preset.settings)
    assert model.parameter_count == preset.parameters == released


def test_without_latent_weights_a_block_is_attention_and_a_residual():
    block = shaken(SpectralBlock(8, 2, 3, 5))
    u = torch.randn(4, 7, 8, dtype=torch.float64)
    with torch.no_grad():
        block.weight.zero_()
    t = torch.randn(4, 2, 3, 4, dtype=torch.float64)
    assert torch.equal(block.transition(t), t)
    torch.testing.assert_close(block(u).mT, block_of_patch(u.mT, block))
    with torch.no_grad():
        block.latent.zero_()
        block.key_value.weight.zero_()
        block.key_value.bias.zero_()
    assert torch.equal(block(u), u)


def test_frequencies_are_a_buffer_that_no_file_holds():
    block = SpectralBlock(8, 2, 3, 5)
    assert dict(block.named_buffers())["frequencies"].tolist() == [0, 1, 2, 3, 4]
    assert "frequencies" not in block.state_dict()
    t = torch.rand(1, 2, 3, 4)
    # from meta to a device and back, as any buffer
    assert block.to("meta").transition(t.to("meta")).device.type == "meta"


def test_no_point_of_the_grid_is_lost_or_made():
    for grid in ((16, 16), (16, 13), (13, 16), (9, 5)):
        model = small(dim=2)
        x = torch.rand(*grid, 2)
        assert model(torch.randn(2, *grid, 1), x).shape == (2, *grid, 1)


@variants
def test_a_batch_equals_its_samples(variant):
    model, (a, x) = shaken(small(**VARIANTS[variant])), some(variant)
    model(a, x)  # what batch norms remember
    model.eval()
    singles = torch.cat([model(a[i : i + 1], x[i]) for i in range(3)])
    torch.testing.assert_close(model(a, x), singles, rtol=1e-9, atol=1e-9)


def test_points_of_a_cloud_may_be_permuted_and_others_asked_for():
    model, (a, x) = shaken(small(**VARIANTS["latent"])).eval(), some("latent")
    order = torch.randperm(23)
    expected = model(a, x)
    torch.testing.assert_close(model(a[:, order], x[:, order]), expected[:, order])
    torch.testing.assert_close(model(a, x, x[:, :5]), expected[:, :5])


def test_domains_are_those_of_its_grid():
    assert small().domains == small(dim=1).domains == {"periodic", "cell", "nodal", "curvilinear"}
    model = small(latent=12, modes=4)
    assert "cloud" in model.domains
    assert model.masks
    assert model.other_points
    a, x = some("square")
    with pytest.raises(ValueError, match="y must be None"):
        small().double()(a, x, x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 3}, "dim must be 1 or 2, got 3"),
        ({"heads": 3}, "heads must divide width, got heads=3, width=8"),
        ({"levels": 1}, "levels must be at least 2, got 1"),
        ({"patches": 6}, r"2\^\(levels - 1\) must divide patches, got levels=3, patches=6"),
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"basis": 0}, "basis must be at least 1, got 0"),
        ({"latent": 12}, "latent must be at least 24, got 12"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)
