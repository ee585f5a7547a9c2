"""Statistics of stores, on arrays whose statistics are known."""

import numpy as np
import xarray as xr

from pdegen.equations.pipe.solver import CentreLine
from tests.validation.statistics import elasticity, pipe


def test_knots_and_flows_of_pipes_are_found_again():
    rng, eta = np.random.default_rng(0), np.linspace(-0.5, 0.5, 17)
    heights = np.pad(rng.uniform(-1, 1, (6, 4)), ((0, 0), (1, 0)))
    line = CentreLine(heights, rng.uniform(-2, 2, (6, 5)))
    y = line(17)[:, :, None] + eta
    u = np.broadcast_to(0.25 - eta**2, y.shape).copy()
    u[0, 5, 7] = -0.1
    fields = {
        name: (("sample", "i", "j"), values)
        for name, values in zip("yuv", (y, u, 0 * u), strict=True)
    }
    store = xr.Dataset({**fields, "flux": ("sample", np.arange(6) / 100)})
    rows = {row.said: row.here for row in pipe(store)}
    for name, values in (("heights", heights[:, 1:]), ("slopes", line.slopes)):
        expected = f"{values.std():.3f}, {values.min():.3f} to {values.max():.3f}"
        assert rows[f"{name} of knots, deviation and range"] == expected
    assert rows["`flux`, median, mean and largest"] == "2.50%, 2.50%, 5.00%"
    assert rows["samples in which fluid flows back"] == "17%"
    straight = float(rows["relative L² error of the flow of a straight pipe"])
    assert 0 < straight < 0.1  # of the one value that was changed


def test_stresses_weigh_points_alike_and_by_area():
    u, weight = np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([[3.0, 1.0], [1.0, 1.0]])
    store = xr.Dataset({"u": (("sample", "p"), u), "weight": (("sample", "p"), weight)})
    rows = {row.said: row.here for row in elasticity(store)}
    assert rows["mean of `u` over the points"] == "2, 2, 2, 2, 2"
    assert rows["mean of `u` by area"] == "1.5, 1.625, 1.75, 1.875, 2"
    assert rows["largest `u`"] == "2, 2.25, 2.5, 2.75, 3"
    assert "`theta`, deviation" not in rows
