"""Errors beside relative L²: each is known where the error is a function that is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.data import Map, Samples
from pdegen.domains import Box, Cloud, Domain
from pipelines.runs.baselines import Trivial
from pipelines.runs.evaluation import compute_score
from pipelines.runs.measures import BANDS, measures_of

ALWAYS = {"l1", "max", "mean", "energy"}


def pairs_on(domain: Domain, u: torch.Tensor, a: torch.Tensor | None = None) -> Samples:
    points = torch.from_numpy(domain.points)
    a = torch.zeros_like(u) if a is None else a
    return Samples.of(
        a=a, u=u, x=points, y=None, samples=np.arange(len(u)), domain=domain,
        source={"resolution": 0},
    )  # fmt: skip


def measured(pairs: Samples, p: torch.Tensor) -> dict[str, torch.Tensor]:
    return measures_of(p, pairs.all, pairs)


def on(domain: Domain, *functions) -> torch.Tensor:
    """One sample for each function of the positions."""
    return torch.from_numpy(np.stack([f(domain.points) for f in functions]))[..., None]


@pytest.mark.parametrize(("waves", "band"), [(4, "low"), (5, "middle"), (13, "high")])
def test_a_wave_is_an_error_of_its_band_alone(waves, band):
    domain = Box.periodic(64)
    u = on(domain, lambda x: 2 * np.sin(2 * np.pi * x[..., 0]))
    e = on(domain, lambda x: 0.1 * np.cos(2 * np.pi * waves * x[..., 0]))
    found = measured(pairs_on(domain, u), u + e)
    assert {name for name in BANDS if found[name] > 1e-12} == {band}
    assert found[band] == pytest.approx(0.05)


def test_waves_on_cells_are_pairs_of_half_waves():
    domain = Box.cell(40, 40)
    u = torch.ones(1, 40, 40, 1, dtype=torch.float64)
    # 6 and 8 half waves: √(3² + 4²) = 5 waves
    e = on(domain, lambda x: np.cos(6 * np.pi * x[..., 0]) * np.cos(8 * np.pi * x[..., 1]))
    found = measured(pairs_on(domain, u), u + 0.2 * e)
    assert {name for name in BANDS if found[name] > 1e-12} == {"middle"}
    assert found["middle"] == pytest.approx(0.1)


@pytest.mark.parametrize("domain", [Box.periodic(48), Box.cell(31, 20), Box.nodal(33, 9)])
def test_squares_of_the_bands_sum_to_the_square_of_the_error(domain):
    u, e = torch.randn(2, 3, *domain.shape, 2, generator=torch.Generator().manual_seed(0)).double()
    found = measured(pairs_on(domain, u), u + e)
    error = e.flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)
    total = sum(found[name] ** 2 for name in BANDS if name in found)
    np.testing.assert_allclose(total, error**2, rtol=1e-12)


def test_h1_counts_slopes():
    """‖e‖² + ‖e'‖² is multiplied by 1 + (2πk)² for k waves, up to the square of the spacing."""
    domain = Box.periodic(2048)
    u = on(domain, lambda x: np.sin(2 * np.pi * x[..., 0]))
    e = on(domain, lambda x: 0.01 * np.sin(6 * np.pi * x[..., 0]))
    found = measured(pairs_on(domain, u), u + e)["h1"]
    expected = 0.01 * math.sqrt((1 + (6 * np.pi) ** 2) / (1 + (2 * np.pi) ** 2))
    assert found == pytest.approx(expected, rel=1e-4)


def test_h1_takes_the_spacing_of_each_axis():
    domain = Box.cell(400, 100)
    u = on(domain, lambda x: np.ones(x.shape[:-1]))
    e = on(domain, lambda x: 0.1 * x[..., 0] + 0.3 * x[..., 1])
    found = measured(pairs_on(domain, u), u + e)["h1"]
    norm = 0.01 / 3 + 0.09 / 3 + 2 * 0.03 / 4
    assert found == pytest.approx(math.sqrt(norm + 0.01 + 0.09), rel=1e-2)


def test_a_shift_is_an_error_of_the_mean_a_factor_one_of_the_energy():
    domain = Box.periodic(16)
    u = on(domain, lambda x: np.sin(2 * np.pi * x[..., 0]) + 1)
    size = math.sqrt(1.5)
    found = measured(pairs_on(domain, u), u + 0.3)
    assert found["mean"] == pytest.approx(0.3 / size)
    assert found["max"] == pytest.approx(0.3 / float(u.max()))
    found = measured(pairs_on(domain, u), 0.9 * u)
    assert found["energy"] == pytest.approx(1 - 0.81)
    wave = on(domain, lambda x: np.cos(4 * np.pi * x[..., 0]))
    assert measured(pairs_on(domain, u), u + wave)["mean"] == pytest.approx(0, abs=1e-12)


def test_a_weight_counts_in_means():
    domain = Box.cell(4)
    u = torch.ones(1, 4, 1).double()
    pairs = replace(pairs_on(domain, u), weight=torch.tensor([1.0, 1.0, 1.0, 0.0]))
    p = u + torch.tensor([0.3, 0.0, 0.0, 9.0])[:, None]
    found = measured(pairs, p)
    assert found["mean"] == pytest.approx(0.1)
    assert found["max"] == pytest.approx(0.3)
    assert found["energy"] == pytest.approx((1.69 + 2) / 3 - 1)


def test_the_boundary_is_the_outermost_points():
    domain = Box.nodal(9, 9)
    u = torch.full((1, 9, 9, 1), 2.0).double()
    e = torch.zeros_like(u)
    e[:, 0], e[:, 4, 4] = 0.5, 100.0
    found = measured(pairs_on(domain, u), u + e)
    assert found["boundary"] == pytest.approx(math.sqrt(9 * 0.25 / 32) / 2)
    torus = Box.periodic(9, 9)
    assert "boundary" not in measured(pairs_on(torus, u), u + e)


def test_errors_at_a_jump_are_steep():
    """A front between points 19 and 20 of 80; others have no slope."""
    domain = Box.cell(80)
    u = on(domain, lambda x: np.where(x[..., 0] < 0.25, 1.0, -1.0))
    e = torch.zeros_like(u)
    e[:, 19:21] = 0.5
    found = measured(pairs_on(domain, u), u + e)["steep"]
    assert found == pytest.approx(0.5)
    e = torch.zeros_like(u)
    e[:, 40:60] = 0.5
    assert measured(pairs_on(domain, u), u + e)["steep"] == 0


def test_a_jump_across_the_end_of_a_circle_is_steep():
    u = torch.linspace(-1, 1, 60).double()[None, :, None]
    e = torch.zeros_like(u)
    e[:, 0] = e[:, -1] = 0.3
    found = measured(pairs_on(Box.periodic(60), u), u + e)["steep"]
    size = float(u.square().mean().sqrt())
    assert found == pytest.approx(0.3 * math.sqrt(2 / 3) / size)
    open_ = measured(pairs_on(Box.cell(60), u), u + e)["steep"]  # where the slope is the same
    assert open_ < found


def test_errors_next_to_phases_are_of_the_interface():
    domain = Box.cell(10, 10)
    a = torch.full((1, 10, 10, 1), 3.0)
    a[:, 5:] = 12.0
    u, e = torch.ones(1, 10, 10, 1), torch.zeros(1, 10, 10, 1)
    e[:, 4:6] = 0.2
    assert measured(pairs_on(domain, u, a), u + e)["interface"] == pytest.approx(0.2)
    e = torch.full_like(u, 0.7)
    e[:, 4:6] = 0.0
    assert measured(pairs_on(domain, u, a), u + e)["interface"] == 0
    a = a + torch.rand(a.shape, generator=torch.Generator().manual_seed(0))
    assert "interface" not in measured(pairs_on(domain, u, a), u + e)


def test_each_sample_has_phases_of_its_own():
    """Contrasts, levels in a channel and samples without phases, in any batches."""
    a = torch.full((103, 10, 10, 2), 3.0)
    a[:, 5:, :, 1] = torch.linspace(4, 9, 103)[:, None, None]  # two phases, which differ
    a[::2, ..., 0] = 5.0  # a level or parameter
    single = [7, 100, 101, 102]  # samples with one phase, among them a whole batch
    a[single, ..., 1] = 1.0
    u, e = torch.ones(103, 10, 10, 1), torch.zeros(103, 10, 10, 1)
    e[:, 4:6] = 0.2
    pairs = pairs_on(Box.cell(10, 10), u, a)
    lookup = iter((u + e).split([50, 50, 3]))
    score = compute_score(Trivial(lambda a: next(lookup)), pairs, Map())
    found = torch.tensor(score.measures["interface"])
    assert [i for i, error in enumerate(found) if error.isnan()] == single
    torch.testing.assert_close(found[~found.isnan()], torch.full((99,), 0.2))


def test_nothing_is_relative_to_zero():
    domain = Box.cell(12, 12)
    u = torch.zeros(1, 12, 12, 1)
    found = measured(pairs_on(domain, u), u + 1)
    assert {name for name, value in found.items() if not math.isnan(value)} == set()


def test_a_cloud_has_what_needs_no_grid():
    u = torch.rand(2, 9, 1)
    cloud = Samples.of(
        a=u, u=u, x=None, y=None, samples=np.arange(2), domain=Cloud((9,), 2), source={},
        per_sample={"x": torch.rand(2, 9, 2)},
    )  # fmt: skip
    found = measured(cloud, 1.1 * u)
    assert found.keys() >= ALWAYS
    assert not found.keys() & {"h1", "low", "boundary", "steep", "interface"}


def test_the_first_channel_with_two_phases_has_the_interface():
    a = torch.full((1, 10, 10, 3), 3.0)
    a[..., 0], a[:, 5:, :, 1], a[:, :, 2:, 2] = 1.0, 12.0, 12.0
    u, e = torch.ones(1, 10, 10, 1), torch.zeros(1, 10, 10, 1)
    e[:, 4:6] = 0.2
    assert measured(pairs_on(Box.cell(10, 10), u, a), u + e)["interface"] == pytest.approx(0.2)
