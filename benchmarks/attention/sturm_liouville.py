"""The smallest eigenvalues of -div(a grad u) on a box, and their eigenfunctions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
import scipy.sparse as sparse
from jaxtyping import Float
from scipy.sparse.linalg import eigsh

Walls = Literal["periodic", "dirichlet", "natural"]
_GAUSS = (0.5 - 0.5 / 3**0.5, 0.5 + 0.5 / 3**0.5)


@dataclass(frozen=True)
class Line:
    """Linear finite elements between points of an interval.

    Args:
        x: The points, in rising order.
        low, high: Ends of the interval.
        walls: "periodic", "dirichlet" (u = 0 at both ends) or "natural" (a ∂u/∂n = 0 at the first
            and the last point).

    Raises:
        ValueError: If the points do not rise within the interval.
    """

    x: Float[np.ndarray, " n"]
    low: float = 0.0
    high: float = 1.0
    walls: Walls = "natural"

    def __post_init__(self) -> None:
        if len(self.x) < 2 or (np.diff(self.x) <= 0).any():
            raise ValueError("expected two or more points in rising order")
        if self.x[0] < self.low or self.x[-1] > self.high:
            raise ValueError(f"points lie in [{self.low}, {self.high}], got {self.x[[0, -1]]}")

    @property
    def nodes(self) -> Float[np.ndarray, " nodes"]:
        """Ends of the elements: the points, and walls beyond the first or the last point."""
        if self.walls == "periodic":
            return np.append(self.x, self.x[0] + self.high - self.low)
        if self.walls == "natural":
            return self.x
        return np.unique(np.concatenate([[self.low], self.x, [self.high]]))

    @property
    def free(self) -> np.ndarray:
        """Indices of the nodes with unknown values."""
        inner = np.arange(len(self.nodes))
        return {"periodic": inner[:-1], "natural": inner, "dirichlet": inner[1:-1]}[self.walls]

    @property
    def places(self) -> np.ndarray:
        """Indices of the points among the nodes."""
        return np.searchsorted(self.nodes, self.x)

    def matrices(self) -> tuple[Any, Any, Float[np.ndarray, " m"]]:
        """Matrices from nodes to values and derivatives at two Gauss points per element, and the
        weights of these points. On a period the last node is the first."""
        h = np.diff(self.nodes)
        element, xi = np.arange(len(h)).repeat(2), np.tile(_GAUSS, len(h))
        left, right = element, element + 1
        if self.walls == "periodic":
            right = right % len(h)
        shape = (2 * len(h), len(self.nodes) - (self.walls == "periodic"))
        slope = 1 / h[element]

        def matrix(at_left: np.ndarray, at_right: np.ndarray) -> Any:
            rows = np.arange(2 * len(h))
            entries = np.concatenate([at_left, at_right])
            where = np.concatenate([rows, rows]), np.concatenate([left, right])
            return sparse.csr_array((entries, where), shape=shape)

        return matrix(1 - xi, xi), matrix(-slope, slope), h[element] / 2


@dataclass(frozen=True)
class SturmLiouville:
    """-div(a grad u) = λ u with (bi)linear elements between the points of a grid: of order 2.

    The coefficient a is (bi)linear between the points and constant from the outermost points to
    the walls.

    Args:
        lines: The elements along each of one or two axes.
        a: Coefficient at the points of the grid; None for 1.
    """

    lines: tuple[Line, ...]
    a: Float[np.ndarray, "*grid"] | None = None

    def eigenfunctions(
        self, k: int
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "*grid {k}"]]:
        """The k smallest eigenvalues in rising order, and eigenfunctions with ∫ u² = 1.

        >>> x = np.linspace(0, 1, 65)
        >>> values, u = SturmLiouville((Line(x, walls="dirichlet"),)).eigenfunctions(2)
        >>> (values / np.pi**2).round(2)
        array([1., 4.])
        """
        parts = [line.matrices() for line in self.lines]
        at_gauss: Any = reduce(sparse.kron, [values for values, _, _ in parts])
        weight = reduce(np.multiply.outer, [w for *_, w in parts]).ravel()
        medium = 1.0 if self.a is None else at_gauss @ self._on_nodes(self.a)
        stiffness: Any = 0
        for axis in range(len(parts)):
            of = [part[axis == number] for number, part in enumerate(parts)]
            gradient: Any = reduce(sparse.kron, of)
            stiffness = stiffness + gradient.T @ sparse.diags_array(weight * medium) @ gradient
        mass = at_gauss.T @ sparse.diags_array(weight) @ at_gauss
        free = self._free()
        unit: Any = sparse.eye_array(at_gauss.shape[1], format="csc")
        select = unit[:, free]
        stiffness, mass = (select.T @ m @ select for m in (stiffness, mass))
        start = np.random.default_rng(0).standard_normal(len(free))
        solution: Any = eigsh(stiffness, k, mass, sigma=-1.0, v0=start)
        values, vectors = solution
        order = np.argsort(values)
        whole = np.zeros((at_gauss.shape[1], k))
        whole[free] = vectors[:, order]
        shape = [len(line.nodes) - (line.walls == "periodic") for line in self.lines]
        u = whole.reshape(*shape, k)[np.ix_(*(line.places for line in self.lines))]
        return values[order], u

    def _free(self) -> np.ndarray:
        shape = [len(line.nodes) - (line.walls == "periodic") for line in self.lines]
        return np.ravel_multi_index(np.ix_(*(line.free for line in self.lines)), shape).ravel()

    def _on_nodes(self, a: np.ndarray) -> np.ndarray:
        """Coefficient at the nodes, constant beyond the outermost points."""
        for axis, line in enumerate(self.lines):
            if line.walls == "dirichlet":
                before = int(line.places[0])
                after = len(line.nodes) - 1 - int(line.places[-1])
                width = [(0, 0)] * a.ndim
                width[axis] = (before, after)
                a = np.pad(a, width, mode="edge")
        return a.ravel()


def principal_cosines(
    f: Float[np.ndarray, "n k"], g: Float[np.ndarray, "n m"]
) -> Float[np.ndarray, " r"]:
    """Cosines, in falling order, of the principal angles between the column spans of f and g.

    >>> e = np.eye(4)
    >>> principal_cosines(e[:, :2], np.stack([e[0], e[1] + e[2]], axis=-1)).round(3)
    array([1.   , 0.707])
    """
    first, second = np.linalg.qr(f)[0], np.linalg.qr(g)[0]
    return np.clip(np.linalg.svd(first.T @ second, compute_uv=False), 0.0, 1.0)
