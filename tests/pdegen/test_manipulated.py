"""Stores whose targets were changed are noticed without the solver.

The equations in time have one component in 1-D, two in 2-D, and one in 2-D.

What cannot be noticed is a symmetry of the equation and of the law: input and targets that are
shifted, reflected or transposed together are another sound sample.
"""

from functools import cache

import numpy as np
import pytest

from pdegen.recipe import load_recipe
from tests.pdegen.small import FLOW, SEMILINEAR, SMALL
from tests.pdegen.test_checks import findings

SAMPLES = 8
FORMS = {  # overrides under which eight samples are solved within a second
    "burgers-trajectory": {**SMALL["burgers-trajectory"][0], "times": [0.25, 0.5, 1.0]},
    "gray-scott": {**SEMILINEAR["gray-scott"], "times": [20.0, 40.0, 60.0], "tolerance": 0.01},
    "kdv": {**SEMILINEAR["kdv"], "times": [0.2, 0.4, 0.6, 0.8]},
    "kuramoto-sivashinsky": {"dt": 0.1, "tolerance": 1e-3},
    "ns-1e-3": {**FLOW, "times": [0.5, 1.0, 1.5]},
    "swift-hohenberg": {**SEMILINEAR["swift-hohenberg"], "dt": 0.2, "times": [2.0, 4.0, 6.0, 8.0]},
}  # fmt: skip
THREE = ("burgers-trajectory", "gray-scott", "ns-1e-3")


@cache
def problem(name):
    return load_recipe(name).with_overrides(FORMS[name]).problem


@cache
def stored(name, stretch=1.0):
    """Values of a store, or those at times that are stretched."""
    told = problem(name)
    made = told.model_copy(update={"times": tuple(stretch * t for t in told.times)})
    return made.compute(0, range(SAMPLES))


def of_frame(change):
    """The change of one frame in the middle, in all samples."""

    def changed(u):
        u, middle = u.copy(), u.shape[1] // 2
        u[:, middle] = change(u[:, middle : middle + 1])[:, 0]
        return u

    return changed


def swapped(axis, one, other):
    def changed(u):
        order = list(range(u.shape[axis]))
        order[one], order[other] = other, one
        return np.take(u, order, axis=axis)

    return changed


def moved(points):
    return lambda u: np.roll(u, points, axis=3)


def mirrored(u):
    return np.roll(np.flip(u, axis=3), 1, axis=3)


CHANGES = {  # of u, (samples, times, components, *points)
    "targets moved by a point": moved(1),
    "targets moved by an eighth": lambda u: moved(u.shape[3] // 8)(u),
    "a frame moved by an eighth": of_frame(lambda u: moved(u.shape[3] // 8)(u)),
    "targets of another sign": np.negative,
    "a frame of another sign": of_frame(np.negative),
    "targets of the next sample": lambda u: np.roll(u, 1, axis=0),
    "two samples swapped": swapped(0, 3, 6),
    "two frames swapped": swapped(1, 1, 2),
    "frames in reverse": lambda u: u[:, ::-1],
    "components swapped": lambda u: u[:, :, ::-1],
    "targets scaled by 1.01": lambda u: np.float32(1.01) * u,
    "a frame scaled by 1.1": of_frame(lambda u: np.float32(1.1) * u),
    "axes transposed": lambda u: u.swapaxes(-1, -2),
    "targets mirrored": mirrored,
    "a frame mirrored": of_frame(mirrored),
    "times stretched by 1.1": None,
}


NOTHING = {  # changes that leave values as they are
    ("burgers-trajectory", "components swapped"),
    ("burgers-trajectory", "axes transposed"),
    ("ns-1e-3", "components swapped"),
}


@pytest.mark.parametrize("name", THREE)
def test_what_was_not_changed_passes(name):
    assert findings(problem(name).checks_of_store(), stored(name)) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, change) for name in THREE for change in CHANGES if (name, change) not in NOTHING],
)
def test_what_was_changed_is_noticed(name, change):
    told, values = problem(name), stored(name)
    if change == "times stretched by 1.1":
        values = stored(name, stretch=1.1)
    else:
        u = values["u"].reshape(SAMPLES, len(told.times), -1, *told.domain.shape)
        changed = np.ascontiguousarray(CHANGES[change](u)).reshape(values["u"].shape)
        values = {**values, "u": changed}
    assert "u" in {one.variable for one in findings(told.checks_of_store(), values)}


@pytest.mark.parametrize("name", THREE)
def test_errors_of_zero_are_noticed(name):
    """What is computed in time has an error, of rounding at least."""
    values = stored(name)
    found = findings(problem(name).checks_of_store(), {**values, "error": 0 * values["error"]})
    assert {one.variable for one in found} == {"error"}
