"""PiT of 2025 against the released function written out, in float64."""

import pytest
import torch

from operators.models.pit_2025 import PiT2025
from operators.nn.normalization import InstanceNorm
from tests.operators.drawn import same, shaken
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
    found = model(a, x)
    same(found, torch.stack(alone).view_as(found), model, rtol=1e-8)


def test_on_clouds_of_their_own_it_is_the_released_operator_of_elasticity():
    model = small(dim=2, in_channels=3, latent="output", periodic=False)
    x, a = irregular(3, 29), torch.randn(3, 29, 3, dtype=torch.float64)
    alone = [plain(model, torch.cat([p, v], -1), p, p, p, None) for p, v in zip(x, a, strict=True)]
    found = model(a, x)
    same(found, torch.stack(alone).view_as(found), model, rtol=1e-8)


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
    found = model(outline, outline, y)
    same(found, torch.stack(alone).view_as(found), model, rtol=1e-8)


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
