"""PiT of 2025 against the released function written out, in float64."""

import pytest
import torch

from operators.models.pit_2025 import PiT2025
from operators.nn.normalization import InstanceNorm
from tests.operators.drawn import shaken
from tests.oracles.plain_pit_2025 import plain


def small(**settings):
    torch.manual_seed(0)
    return shaken(PiT2025(**{"width": 8, "depth": 2, "latent": 6, "encoder_locality": 21.0,
                             "decoder_locality": 13.0} | settings))  # fmt: skip


def lattice(dim, n, ends=False):
    axis = torch.arange(n, dtype=torch.float64) / (n - ends)
    return torch.stack(torch.meshgrid(*[axis] * dim, indexing="ij"), dim=-1)


def irregular(*sizes):
    return torch.rand(*sizes, 2, dtype=torch.float64)


def compared(model, a, x, y, alone):
    """Values, and gradients by all weights, of the operator and of samples one by one."""
    found, expected = model(a, x, y), torch.stack(alone)
    torch.testing.assert_close(found, expected.view_as(found), rtol=1e-10, atol=1e-10)
    slope = torch.randn_like(found)
    gradients = [
        torch.autograd.grad((u * slope).sum(), list(model.parameters()), retain_graph=True)
        for u in (found, expected.view_as(found))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("dim", "settings", "latent"),
    [
        (1, {"dim": 1, "periodic": True, "heads": 2}, lattice(1, 6)),
        (1, {"dim": 1, "periodic": False, "heads": 1}, lattice(1, 6)),
        (2, {"dim": 2, "periodic": False, "ends": True}, lattice(2, 6, True)),
        (2, {"dim": 2, "periodic": True, "normalization": "instance"}, lattice(2, 6)),
    ],
    ids=["burgers", "sod", "darcy", "vorticity"],
)
def test_on_grids_it_is_the_released_operator_written_out(dim, settings, latent):
    model = small(**settings)
    # of points at one distance, rounding would decide which are neighbours in the released code
    x = lattice(dim, 11) + 0.01 * torch.rand(*[11] * dim, dim, dtype=torch.float64)
    a, rows = torch.randn(3, *[11] * dim, 1, dtype=torch.float64), x.flatten(0, -2)
    period = 1.0 if settings["periodic"] else None
    alone = [
        plain(model, torch.cat([rows, one.flatten(0, -2)], -1), rows, latent.flatten(0, -2), rows,
              period)
        for one in a
    ]  # fmt: skip
    compared(model, a, x, None, alone)


def test_on_clouds_of_their_own_it_is_the_released_operator_of_elasticity():
    model = small(dim=2, in_channels=3, latent="output", periodic=False)
    x, a = irregular(3, 29), torch.randn(3, 29, 3, dtype=torch.float64)
    alone = [plain(model, torch.cat([p, v], -1), p, p, p, None) for p, v in zip(x, a, strict=True)]
    compared(model, a, x, None, alone)


def test_from_an_outline_to_a_mesh_it_is_the_released_operator_of_airfoils():
    """Every second point of the mesh, in both directions, is a latent one."""
    model = small(
        dim=2, in_channels=2, out_channels=4, heads=1, latent="output", stride=2, periodic=False,
        coordinates="none",
    )  # fmt: skip
    outline, y = irregular(2, 12), irregular(2, 7, 5)
    alone = [
        plain(model, p, p, z[::2, ::2].flatten(0, 1), z.flatten(0, 1), None)
        for p, z in zip(outline, y, strict=True)
    ]
    compared(model, outline, outline, y, alone)


@pytest.mark.parametrize("name", PiT2025.presets)
def test_presets_have_the_parameters_of_the_released_networks(name):
    preset = PiT2025.presets[name]
    inputs, outputs = preset.channels
    with torch.device("meta"):
        model = PiT2025(in_channels=inputs, out_channels=outputs, dim=preset.dim, **preset.settings)
    assert model.parameter_count == preset.parameters


def test_the_count_is_the_sum_of_its_parts():
    d, h, c = 64, 2, 2  # c: the coordinate and a
    first, last = h * c * d + d + d * d + d, h * d * d + d + d + 1
    block = h + (1 + h) * d * d + d + d * d + d
    assert PiT2025().parameter_count == 2 * h + first + 5 * block + last


def test_a_scale_stands_for_longer_coordinates():
    """Of shock tubes, within [-5, 5] there; here within [0, 1]."""
    short, long = small(periodic=False, scale=0.01), small(periodic=False)
    x, y = lattice(1, 11).squeeze(-1), lattice(1, 7).squeeze(-1)
    weights = [
        model.down.scores(s * x[:, None], s * y[:, None]).softmax(-1)
        for model, s in ((short, 1.0), (long, 10.0))
    ]
    torch.testing.assert_close(*weights)


def test_an_instance_norm_has_the_moments_of_the_points_that_are_no_padding():
    u, norm = torch.randn(2, 9, 3, dtype=torch.float64), InstanceNorm()
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    found = norm(u, mask)
    torch.testing.assert_close(found[:1], norm(u[:1]))
    torch.testing.assert_close(found[1:, :5], norm(u[1:, :5]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent": [4]}, "latent needs one number for each of 2 axes, at least 1, got .4."),
        ({"latent": 0}, "latent needs one number for each of 2 axes, at least 1, got 0"),
        ({"stride": 2}, 'stride is for latent "output"'),
        ({"encoder_locality": 0.0}, r"encoder_locality lies in \(0, 100\], got 0.0"),
        ({"scale": 0.0}, "scale must be positive, got 0.0"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
    ],
)
def test_refuses_impossible_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        PiT2025(dim=2, **settings)
