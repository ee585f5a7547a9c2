"""Checks of stored flows around airfoils."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from pdegen.checks.check import (
    EPSILON,
    Bound,
    Distinct,
    StoreChecks,
    UniformCheck,
    Values,
    stated_error,
)
from pdegen.domains import Curvilinear
from pdegen.equations.airfoil.grid import PUBLISHED_CELLS, WAKE_CELLS, c_grid
from pdegen.equations.airfoil.stream import FreeStream

_ROUNDING = 16 * EPSILON  # relative rounding of a quantity computed from a few float32 numbers
_NAMES = tuple(f"d{k}" for k in range(2, 9))

# maps displacements to the uniform numbers in (0, 1) that define them, shape (batch, 7)
ToUniforms = Callable[[Float[np.ndarray, "batch 8"]], Float[np.ndarray, "batch 7"]]


def airfoil_checks(
    stream: FreeStream, resolution: int, to_uniforms: ToUniforms, tolerance: float
) -> StoreChecks:
    """Checks of flows around random airfoils.

    The displacements of the control points are uniform. The nodes are those of the C-grid that the
    displacements define. Density, pressure and velocity describe one flow:

    - The total enthalpy equals that of the stream at all nodes.
    - The entropy ahead of the airfoil equals that of the stream.
    - The Mach number follows from density, pressure and velocity.
    - No gas flows through the wall, and drag and lift follow from the pressure on the wall.
    - Far from the airfoil the state is that of the stream.
    """
    flow = _Flow(stream, resolution)
    return StoreChecks(
        (
            _Uniform(to_uniforms),
            Distinct("design"),
            Distinct("u"),
            Bound(
                "design",
                "the displacement of the fixed control point",
                lambda v: (abs(v["design"][:, 0]), 0.0),
            ),
            Bound("residual", "the residual", lambda v: (abs(v["residual"]), tolerance)),
            Bound("status", "the status", lambda v: (abs(v["status"]).astype(float), 0.0)),
            *stated_error(math.inf),
            Bound("x", "the distance of the nodes from those of the design", flow.nodes),
            Bound("weight", "the distance from the areas of the nodes", flow.areas),
            Bound("density", "the number of nodes without density or pressure", flow.empty),
            Bound("pressure", "the relative deviation of the total enthalpy", flow.enthalpy),
            Bound("u", "the distance from the Mach number of the fields", flow.mach),
            Bound("density", "the change of entropy ahead of the airfoil", flow.entropy),
            Bound("density", "the loss of entropy", flow.entropy_loss),
            Bound("velocity", "the fraction of the velocity through the wall", flow.through),
            Bound("velocity", "the distance from the stream far away", flow.far),
            Bound("lift", "the distance of drag and lift from those of the pressures", flow.forces),
        )
    )


class _Uniform(UniformCheck):
    """The numbers from which the displacements were computed are uniform in (0, 1)."""

    subject = "the displacements"

    def __init__(self, to_uniforms: ToUniforms) -> None:
        super().__init__("design", _NAMES)
        self._to_uniforms = to_uniforms

    def add(self, numbers: np.ndarray, values: Values) -> None:
        super().add(numbers, {"design": self._to_uniforms(values["design"])})


class _Flow:
    """Quantities that the checks bound for each sample, and their limits.

    A limit is several times the largest value that occurred for random designs.
    """

    def __init__(self, stream: FreeStream, resolution: int) -> None:
        self._stream, self._n = stream, resolution
        self._wake = resolution * WAKE_CELLS // PUBLISHED_CELLS

    def _state(self, v: Values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Density, pressure and velocity, converted to float64."""
        rho, p, u = (v[name].astype(np.float64) for name in ("density", "pressure", "velocity"))
        return rho, p, u

    def _points(self, v: Values) -> Float[np.ndarray, "batch n m 2"]:
        return np.stack([v["x"], v["y"]], axis=-1).astype(np.float64)

    def _wall(self, values: np.ndarray) -> np.ndarray:
        """Values at the nodes on the wall, taken from values (batch, n, m, ...) at all nodes."""
        return values[:, self._wake : self._n - self._wake + 1, 0]

    def nodes(self, v: Values) -> tuple[np.ndarray, np.ndarray]:
        expected = np.array([c_grid(design, self._n) for design in v["design"]])
        distance = abs(self._points(v) - expected.reshape(*v["x"].shape, 2)).max(axis=-1)
        limit = EPSILON * abs(expected).reshape(*v["x"].shape, 2).max(axis=-1)
        return (distance - limit).max(axis=(1, 2)), np.full(len(distance), 1e-12)

    def areas(self, v: Values) -> tuple[np.ndarray, np.ndarray]:
        size = v["x"].shape[1:]
        areas = [Curvilinear(size, 2, points).weights for points in self._points(v)]
        distance = abs(np.array(areas).reshape(v["weight"].shape) - v["weight"])
        return distance.max(axis=(1, 2)), 1e-4 * v["weight"].max(axis=(1, 2))

    def empty(self, v: Values) -> tuple[np.ndarray, float]:
        lacking = ~((v["density"] > 0) & (v["pressure"] > 0))
        return lacking.sum(axis=(1, 2)).astype(np.float64), 0.0

    def enthalpy(self, v: Values) -> tuple[np.ndarray, float]:
        rho, p, u = self._state(v)
        gamma, h = self._stream.gamma, self._stream.enthalpy
        with np.errstate(divide="ignore", invalid="ignore"):  # `empty` reports these nodes
            defect = gamma / (gamma - 1) * p / rho + (u**2).sum(axis=1) / 2 - h
        return abs(defect).max(axis=(1, 2)) / h, _ROUNDING

    def mach(self, v: Values) -> tuple[np.ndarray, float]:
        rho, p, u = self._state(v)
        with np.errstate(divide="ignore", invalid="ignore"):
            mach_number = np.sqrt((u**2).sum(axis=1) * rho / (self._stream.gamma * p))
        return abs(mach_number - v["u"]).max(axis=(1, 2)), _ROUNDING

    def _entropy(self, v: Values) -> Float[np.ndarray, "batch n m"]:
        """Entropy log p/ρ^γ, which is 0 in the undisturbed stream."""
        rho, p, _ = self._state(v)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(p) - self._stream.gamma * np.log(rho)

    def entropy(self, v: Values) -> tuple[np.ndarray, float]:
        ahead = self._entropy(v)[:, self._n // 2, 2 * v["x"].shape[2] // 5 :]
        return abs(ahead).max(axis=1), 1e-3

    def entropy_loss(self, v: Values) -> tuple[np.ndarray, float]:
        return -self._entropy(v).min(axis=(1, 2)), 0.05

    def through(self, v: Values) -> tuple[np.ndarray, float]:
        """Ratio of Σ |u·n| |face| to Σ |u| |face| over the faces on the wall."""
        along = np.diff(self._wall(self._points(v)), axis=1)
        u = self._wall(np.moveaxis(v["velocity"], 1, -1).astype(np.float64))
        u = (u[:, 1:] + u[:, :-1]) / 2
        across = abs(u[..., 0] * along[..., 1] - u[..., 1] * along[..., 0]).sum(axis=1)
        length = np.linalg.norm(along, axis=-1)
        return across / (np.linalg.norm(u, axis=-1) * length).sum(axis=1), 0.05

    def far(self, v: Values) -> tuple[np.ndarray, float]:
        rho, _, u = self._state(v)
        state = np.concatenate([rho[:, None], u], axis=1)[..., -1]
        return abs(state - self._stream.state[:, None]).max(axis=(1, 2)), 0.02

    def forces(self, v: Values) -> tuple[np.ndarray, np.ndarray]:
        p, along = (
            self._wall(v["pressure"].astype(float)),
            np.diff(self._wall(self._points(v)), axis=1),
        )
        p = (p[:, 1:] + p[:, :-1]) / 2 - 1
        # the wall runs from the trailing edge over the upper side: the airfoil is on its left
        x, y = -(p * along[..., 1]).sum(axis=1), (p * along[..., 0]).sum(axis=1)
        cos, sin = self._stream.direction
        dynamic = self._stream.speed**2 / 2  # ρ|u|²/2 of the stream
        drag, lift = (x * cos + y * sin) / dynamic, (y * cos - x * sin) / dynamic
        distance = np.maximum(abs(drag - v["drag"]), abs(lift - v["lift"]))
        return distance, 0.02 + 0.02 * abs(v["lift"])
