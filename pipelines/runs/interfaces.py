"""Measures that compare the phases and interfaces of reconstructed and true coefficients."""

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

_DIAMETER = float(np.sqrt(2))  # diameter of the unit square


def phases(a: Float[np.ndarray, "..."], values: tuple[float, float]) -> Bool[np.ndarray, "..."]:
    """Mask of the cells whose value is nearer to the larger of the two phase values.

    >>> phases(np.array([3.0, 7.0, 8.0]), (3.0, 12.0))
    array([False, False,  True])
    """
    return a > sum(values) / 2


def intersection_over_union(p: Bool[np.ndarray, "n n"], q: Bool[np.ndarray, "n n"]) -> float:
    """Mean of |P ∩ Q| / |P ∪ Q| over both phases. P and Q are the cells of one phase in the first
    and in the second field. If both sets are empty, the ratio is 1."""

    def ratio(v: np.ndarray, w: np.ndarray) -> float:
        union = np.count_nonzero(v | w)
        return np.count_nonzero(v & w) / union if union else 1.0

    return (ratio(p, q) + ratio(~p, ~q)) / 2


def hausdorff(p: Bool[np.ndarray, "n n"], q: Bool[np.ndarray, "n n"]) -> float:
    """Hausdorff distance between the interfaces of two fields in the unit square. `p` and `q` are
    the masks of one phase.

    An interface consists of the midpoints of all faces between cells of different phases. If only
    one field has an interface, the distance is √2, the diameter of the square. If neither field has
    an interface, the distance is 0.
    """
    first, second = interface_points(p), interface_points(q)
    if not len(first) or not len(second):
        return 0.0 if len(first) == len(second) else _DIAMETER
    first_to_second, _ = KDTree(second).query(first)
    second_to_first, _ = KDTree(first).query(second)
    return float(max(first_to_second.max(), second_to_first.max()))


def agreement(
    reconstructed: Float[np.ndarray, "batch n n"],
    truth: Float[np.ndarray, "batch n n"],
    values: tuple[float, float],
) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, " batch"]]:
    """Intersection over union of the phases and Hausdorff distance of the interfaces for each
    sample."""
    pairs = [
        (phases(p, values), phases(q, values)) for p, q in zip(reconstructed, truth, strict=True)
    ]
    return (
        np.array([intersection_over_union(p, q) for p, q in pairs]),
        np.array([hausdorff(p, q) for p, q in pairs]),
    )


def interface_points(p: Bool[np.ndarray, "n n"]) -> Float[np.ndarray, "points 2"]:
    """Midpoints of the faces between the phases, for cells of the unit square."""
    across_x, across_y = np.argwhere(p[1:] != p[:-1]), np.argwhere(p[:, 1:] != p[:, :-1])
    points = np.concatenate([np.add(across_x, (1.0, 0.5)), np.add(across_y, (0.5, 1.0))])
    return points / len(p)


def at_interface(p: Bool[np.ndarray, "*batch n n"]) -> Bool[np.ndarray, "*batch n n"]:
    """Mask of the cells with a face between the phases.

    >>> at_interface(np.array([[True, True, True], [True, True, True], [True, True, False]])) * 1
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 1, 1]])
    """
    mask = np.zeros_like(p)
    across_x, across_y = p[..., 1:, :] != p[..., :-1, :], p[..., 1:] != p[..., :-1]
    mask[..., 1:, :] |= across_x
    mask[..., :-1, :] |= across_x
    mask[..., 1:] |= across_y
    mask[..., :-1] |= across_y
    return mask
