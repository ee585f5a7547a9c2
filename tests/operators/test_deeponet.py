"""DeepONet and shift-DeepONet against their formulas, point by point, and their sensors."""

import math

import pytest
import torch
from torch import nn

from operators.models import deeponet
from operators.models.deeponet import DeepONet, ShiftDeepONet, features
from operators.nn.neighbours import at_sensors
from tests.operators.drawn import points, shaken

BOTH = [DeepONet, ShiftDeepONet]
SMALL = {
    DeepONet: {"basis": 6, "width": 8, "branch_depth": 2},
    ShiftDeepONet: {"basis": 6, "width": 8, "branch_depth": 2, "trunk_width": 5},
}


def grid(n, dim=1, kind="periodic", dtype=torch.float64):
    kinds = {"periodic": "periodic", "cells": "cell", "ends": "nodal"}
    return points(*[n] * dim, kind=kinds[kind], dtype=dtype)


def smooth(x, batch=3):
    """Values of functions with two channels, on any grid."""
    s = torch.arange(1, batch + 1, dtype=x.dtype).view(-1, *[1] * (x.ndim - 1))
    total = 2 * math.pi * x.sum(-1)
    return torch.stack([torch.sin(total + s), torch.cos(s * total) / s], dim=-1)


def small(kind, dim=1, **settings):
    """A model in float64 with weights of order one, so that every term counts."""
    torch.manual_seed(1)
    sizes = {"in_channels": 2, "out_channels": 3, "sensors": 6, "dim": dim}
    return shaken(kind(**sizes | SMALL[kind] | settings))


def dense(layers, v, act):
    """An MLP written out."""
    for layer in layers:
        if isinstance(layer, nn.Linear):
            v = layer.weight @ v + layer.bias
        elif not isinstance(layer, nn.Flatten):
            v = act(v)
    return v


@pytest.mark.parametrize("dim", [1, 2])
def test_equals_the_sum_over_basis_functions(dim):
    model = small(DeepONet, dim, activation="tanh", harmonics=2)
    x, y = grid(6, dim), torch.rand(4, *[1] * (dim - 1), dim, dtype=torch.float64)
    a = smooth(x)
    u = model(a, x, y)
    for i, one in enumerate(a):
        beta = dense(model.branch, one.movedim(-1, 0).flatten(), torch.tanh).view(3, 6)
        for j, point in enumerate(y.view(4, dim)):
            angle = [2 * math.pi * t * k for t in point for k in (1, 2)]
            seen = [math.cos(t) for t in angle] + [math.sin(t) for t in angle]
            tau = torch.tensor(seen, dtype=torch.float64)
            for layer in (model.trunk[0], model.trunk[2], model.trunk[4]):
                tau = torch.tanh(layer.weight @ tau + layer.bias)  # after the last too
            expected = model.bias + sum(beta[:, k] * tau[k] for k in range(6))
            torch.testing.assert_close(u[i].view(4, 3)[j], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2])
def test_shift_equals_the_whole_trunk_at_each_moved_point(dim):
    """τₖ is component k of a network with p outputs, taken at a point of its own."""
    model = small(ShiftDeepONet, dim)
    x = grid(6, dim)
    a, y = smooth(x), torch.rand(4, *[1] * (dim - 1), dim, dtype=torch.float64)
    u, gelu = model(a, x, y), nn.functional.gelu
    for i, one in enumerate(a):
        values = one.movedim(-1, 0).flatten()
        beta = dense(model.branch, values, gelu).view(3, 6)
        scale = dense(model.scale, values, gelu).view(6, dim)
        shift = dense(model.shift, values, gelu).view(6, dim)
        for j, point in enumerate(y.view(4, dim)):
            expected = model.bias.clone()
            for k in range(6):
                tau = dense([*model.hidden, model.last], scale[k] * point + shift[k], gelu)
                expected += beta[:, k] * tau[k]
            torch.testing.assert_close(u[i].view(4, 3)[j], expected, rtol=1e-10, atol=1e-10)


def test_the_points_start_close_to_where_they_are():
    torch.manual_seed(0)
    model, x = ShiftDeepONet(dim=2, sensors=8), grid(8, 2, dtype=torch.float32)
    values = torch.sin(2 * torch.pi * x[..., 0]).flatten()
    # a collapsed trunk, A ≈ 0, would be far below; deviations of a tenth of the usual weights
    assert float((model.scale(values) - 1).detach().abs().max()) < 0.5
    assert float(model.shift(values).detach().abs().max()) < 0.5


@pytest.mark.parametrize("training", [True, False])
def test_points_in_parts_give_the_same_values_and_gradients(training, monkeypatch):
    model, x = small(ShiftDeepONet, 2), grid(6, 2)
    a = smooth(x)
    results = []
    for at_once in (deeponet.AT_ONCE, 3 * 6 * 5 * 7):  # all 36 points, or 7 of them
        monkeypatch.setattr(deeponet, "AT_ONCE", at_once)
        model.zero_grad()
        with torch.set_grad_enabled(training):
            u = model(a, x)
        if training:
            u.square().sum().backward()
        results.append([u, *(p.grad for p in model.parameters() if training)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("sensor_grid", "fine"), [("periodic", 24), ("cells", 18), ("ends", 26)])
@pytest.mark.parametrize("dim", [1, 2])
def test_a_finer_grid_is_read_at_the_sensors_alone(kind, sensor_grid, fine, dim):
    model = small(kind, dim, sensor_grid=sensor_grid)
    x, x_fine = grid(6, dim, sensor_grid), grid(fine, dim, sensor_grid)
    expected = model(smooth(x), x)
    torch.testing.assert_close(model(smooth(x_fine), x_fine, x), expected, rtol=1e-9, atol=1e-9)


def test_parts_of_a_grid_with_its_ends_have_the_sensors_of_each_other():
    """Every third and every fifteenth of 421 cells."""
    cells = grid(421, kind="cells")
    model = small(DeepONet, sensors=29, sensor_grid="ends")
    values = [model(smooth(cells[::r]), cells[::r], cells[:5]) for r in (15, 3)]
    torch.testing.assert_close(values[0], values[1], rtol=1e-12, atol=1e-12)


def test_the_axes_may_be_of_different_grids():
    x = points(6, 18)
    model, coarse = small(DeepONet, 2), grid(6, 2)
    torch.testing.assert_close(
        model(smooth(x), x, coarse), model(smooth(coarse), coarse), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize(
    ("sensor_grid", "n", "kind", "message"),
    [
        ("periodic", 20, "cells", r"6 sensors .* 'periodic' lie on grids of r \* 6 .*, got 20"),
        ("periodic", 3, "cells", r"r \* 6 points along each axis, got 3"),
        ("cells", 12, "cells", r"r \* 6 points, r odd along each axis, got 12"),
        ("ends", 12, "cells", r"r \* 5 \+ 1 points along each axis, got 12"),
        ("ends", 1, "cells", r"r \* 5 \+ 1 points along each axis, got 1"),
        ("periodic", 18, "cells", r"but the grid x of the input has no points there"),
        ("cells", 18, "periodic", r"but the grid x of the input has no points there"),
        ("periodic", 18, "ends", r"but the grid x of the input has no points there"),
    ],
)
def test_refuses_a_grid_without_the_sensors(sensor_grid, n, kind, message):
    x = grid(n, kind=kind)
    with pytest.raises(ValueError, match=message):
        at_sensors(smooth(x), x, 6, sensor_grid)


@pytest.mark.parametrize("n", [128, 1024, 8192])
def test_finds_the_sensors_in_single_precision(n):
    x = grid(n, dtype=torch.float32)
    assert torch.equal(at_sensors(x[None], x, 64, "periodic")[0], x[:: n // 64])


def test_fourier_coordinates_tell_the_ends_apart():
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    first, last = features(ends, "fourier", 2)
    # y; cos πy, cos 2πy; sin πy, sin 2πy
    torch.testing.assert_close(first, torch.tensor([0, 1, 1, 0, 0]).double())
    torch.testing.assert_close(last, torch.tensor([1, -1, 1, 0, 0]).double(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("dim", [1, 2])
def test_convolution_branch_reads_every_sensor_it_covers(dim):
    model, x = small(DeepONet, dim, branch="convolution", sensors=13, channels=4), grid(13, dim)
    a = smooth(x).requires_grad_()
    model(a, x).square().sum().backward()
    assert (a.grad != 0).all()  # 13 -> 5 -> 1: the last covers all
