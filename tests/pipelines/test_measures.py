"""Errors beside relative L²: each is known where the error is a function that is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from operators.data import Channel, Map, Rollout, Samples
from pdegen.domains import Box, Cloud, Domain
from pipelines.runs.evaluation import compute_score
from pipelines.runs.finished import Trivial
from pipelines.runs.score import BANDS, measures_of

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


def written_out(p: np.ndarray, u: np.ndarray, w: np.ndarray | None = None) -> dict[str, list]:
    """Errors of samples of shape (points, channels), by their definitions."""
    w = np.ones(u.shape[:-1]) if w is None else w
    found: dict[str, list[float]] = {"l1": [], "max": [], "mean": [], "energy": []}
    for pi, ui, wi in zip(p, u, w, strict=True):
        e, share = pi - ui, (wi / wi.sum())[:, None]
        square = (share * ui**2).sum()
        l1 = (share * abs(e)).sum(axis=0) / (share * abs(ui)).sum(axis=0)
        found["l1"].append(l1.mean())
        found["max"].append(abs(e[wi > 0]).max() / abs(ui[wi > 0]).max())
        found["mean"].append(math.sqrt(((share * e).sum(axis=0) ** 2).sum() / square))
        found["energy"].append(abs((share * pi**2).sum() / square - 1))
    return found


def drawn_fields(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.random.default_rng(seed).normal(0.3, 1, (2, *shape)))


def test_norms_of_several_samples_and_channels_are_those_of_their_definitions():
    p, u = drawn_fields(0, 3, 6, 5, 2)
    found = measured(pairs_on(Box.cell(6, 5), torch.from_numpy(u)), torch.from_numpy(p))
    expected = written_out(p.reshape(3, 30, 2), u.reshape(3, 30, 2))
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, err_msg=name)


def test_norms_with_weights_are_those_of_their_definitions():
    p, u = drawn_fields(1, 3, 7, 2)
    w = np.array([0.5, 1.0, 2.0, 0.0, 3.0, 0.25, 1.5])
    pairs = replace(pairs_on(Box.cell(7), torch.from_numpy(u)), weight=torch.from_numpy(w))
    found = measured(pairs, torch.from_numpy(p))
    for name, values in written_out(p, u, np.tile(w, (3, 1))).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("periodic", [True, False])
def test_h1_on_the_plane_is_that_of_its_definition(periodic):
    p, u = drawn_fields(2, 2, 6, 4, 2)
    domain = Box.periodic(6, 4) if periodic else Box.nodal(6, 4)
    h = (1 / 6, 1 / 4) if periodic else (1 / 5, 1 / 3)

    def square(v: np.ndarray) -> float:
        total = (v**2).sum(axis=-1).mean()
        for axis in (0, 1):
            around = np.take(v, [0], axis) if periodic else np.take(v, [], axis)
            d = np.diff(np.concatenate([v, around], axis), axis=axis) / h[axis]
            total += (d**2).sum(axis=-1).mean()
        return total

    found = measured(pairs_on(domain, torch.from_numpy(u)), torch.from_numpy(p))["h1"]
    expected = [math.sqrt(square(pi - ui) / square(ui)) for pi, ui in zip(p, u, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_boundary_and_steep_points_are_those_of_their_definitions():
    p, u = drawn_fields(3, 2, 9, 7, 2)
    domain = Box.nodal(9, 7)
    found = measured(pairs_on(domain, torch.from_numpy(u)), torch.from_numpy(p))
    edge = np.ones((9, 7), bool)
    edge[1:-1, 1:-1] = False
    hx, hy = 1 / 8, 1 / 6
    for k in range(2):
        e, size = ((p - u)[k] ** 2).sum(-1), (u[k] ** 2).sum(-1).mean()
        assert float(found["boundary"][k]) == pytest.approx(math.sqrt(e[edge].mean() / size))
        dx, dy = (
            ((np.diff(u[k], axis=0) / hx) ** 2).sum(-1),
            ((np.diff(u[k], axis=1) / hy) ** 2).sum(-1),
        )
        slope = np.zeros((9, 7))
        slope[:-1] += dx
        slope[1:] += dx
        slope[:, :-1] += dy
        slope[:, 1:] += dy
        steep = slope >= np.sort(slope, axis=None)[-3]  # 63 // 20 points
        assert float(found["steep"][k]) == pytest.approx(math.sqrt(e[steep].mean() / size))


def test_a_prediction_that_is_not_finite_is_infinitely_wrong_in_all_measures():
    p, u = (torch.from_numpy(v) for v in drawn_fields(4, 4, 8, 6, 1))
    u[3], p[1, 2, 3] = 0, math.nan
    p[3, 0, 0] = math.inf
    found = measured(pairs_on(Box.cell(8, 6), u), p)
    fine = measured(pairs_on(Box.cell(8, 6), u), p.nan_to_num(0, 0, 0))
    assert found.keys() == fine.keys() >= {"h1", "low", "boundary", "steep"}
    for name, values in found.items():
        assert values[[0, 2]].tolist() == fine[name][[0, 2]].tolist(), name
        assert values[1] == math.inf or name in ("boundary", "steep"), name
        assert values[3].isnan(), name


def test_points_near_a_body_and_points_with_equal_weights_have_errors_of_their_own():
    p, u = (torch.from_numpy(v) for v in drawn_fields(5, 2, 9, 2))
    places = torch.rand(2, 9, 2, generator=torch.Generator().manual_seed(1))
    weight = torch.linspace(1, 3, 9)
    cloud = Samples.of(
        a=u, u=u, x=None, y=None, samples=np.arange(2), domain=Cloud((9,), 2), source={},
        near={"x": (0.2, 0.9), "y": (0.1, 0.6)},
        per_sample={"x": places, "weight": weight.expand(2, 9)},
    )  # fmt: skip
    found = measured(cloud, p)
    inside = (places[..., 0] >= 0.2) & (places[..., 0] <= 0.9)
    inside &= (places[..., 1] >= 0.1) & (places[..., 1] <= 0.6)
    assert inside.any(1).all()
    for k in range(2):
        e = (p - u)[k]
        assert float(found["points"][k]) == pytest.approx(float(e.norm() / u[k].norm()))
        near = e[inside[k]].norm() / u[k][inside[k]].norm()
        assert float(found["near"][k]) == pytest.approx(float(near))


def trajectories() -> tuple[Samples, torch.Tensor]:
    """Two components at three times."""
    p, u = (torch.from_numpy(v) for v in drawn_fields(6, 2, 5, 6))
    channels = tuple(Channel("v", c, t) for t in (0.5, 1.0, 2.0) for c in ("x", "y"))
    return replace(pairs_on(Box.periodic(5), u), target_channels=channels), p


def relative(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return (p - u).flatten(1).norm(dim=1) / u.flatten(1).norm(dim=1)


def test_times_have_errors_of_their_own():
    pairs, p = trajectories()
    u, batch = pairs.all.u, pairs.all
    steps = [relative(p[..., k : k + 2], u[..., k : k + 2]) for k in (0, 2, 4)]
    found = measures_of(p, batch, pairs)
    torch.testing.assert_close(found["block"], relative(p, u))
    torch.testing.assert_close(found["steps"], sum(steps) / 3)
    assert not found.keys() & {"seen", "unseen", "deformed", "near", "points"}
    found = measures_of(p, batch, pairs, Rollout(history=1, frames=2))
    torch.testing.assert_close(found["seen"], relative(p[..., :2], u[..., :2]))
    torch.testing.assert_close(found["unseen"], relative(p[..., 2:], u[..., 2:]))
    assert not measures_of(p, batch, pairs, Rollout(history=1)).keys() & {"seen", "unseen"}
    all_seen = measures_of(p, batch, pairs, Rollout(history=1, frames=4))
    torch.testing.assert_close(all_seen["seen"], all_seen["block"])
    assert "unseen" not in all_seen


def test_deformed_positions_are_measured_from_the_corner():
    p, u = (torch.from_numpy(v) for v in drawn_fields(7, 2, 4, 3, 4))
    domain = Box.nodal(4, 3)
    domain = Box(tuple(replace(grid, start=s) for grid, s in zip(domain.grids, (2.0, -1.0),
                                                                 strict=True)))  # fmt: skip
    channels = tuple(Channel("d", c, t, moves=True) for t in (0.5, 1.0) for c in ("d_x", "d_y"))
    pairs = replace(pairs_on(domain, u), target_channels=channels)
    places = torch.from_numpy(Box.nodal(4, 3).points).repeat(1, 1, 2)
    found = measured(pairs, p)["deformed"]
    expected = relative(torch.cat([p + places, p], -1), torch.cat([u + places, u], -1))
    torch.testing.assert_close(found, expected)
    one_still = (replace(channels[0], moves=False), *channels[1:])
    assert "deformed" not in measured(replace(pairs, target_channels=one_still), p)
    assert "deformed" not in measured(
        replace(pairs_on(domain, u[..., :3]), target_channels=channels[:3]), p[..., :3]
    )
