"""Averages of a moved pulse, by the overlap of intervals with the cells."""

from __future__ import annotations

import numpy as np

from tests.pdegen.recomputed.case import Case, Content, Expected, Near, uniforms

BASE: Content = {
    "equation": "pulses", "speed": -0.7, "times": [0.3, 1.9], "resolution": 12,
    "initial": {"law": "uniform-pulses", "height": [0.2, 0.8], "width": [0.15, 0.4],
                "centre": [0.1, 0.7]},
}  # fmt: skip


def recompute(content: Content, seed: int, samples: range) -> Expected:
    z = np.array([uniforms(seed, sample, 3) for sample in samples])
    a, u = [], []
    for row in z:
        height, width, centre = (
            low + number * (high - low)
            for number, (low, high) in zip(
                row, (content["initial"][k] for k in ("height", "width", "centre")), strict=True
            )
        )
        fields = [
            height * _covered(centre + content["speed"] * t, width, content["resolution"])
            for t in (0.0, *content["times"])
        ]
        a.append(fields[0])
        u.append(fields[1:] if len(fields) > 2 else fields[1])
    return {"a": Near(a, 3e-7), "u": Near(u, 3e-7), "z": Near(z, 1e-15)}


def _covered(centre: float, width: float, n: int) -> np.ndarray:
    edges, fraction = np.arange(n + 1) / n, np.zeros(n)
    for turn in range(-4, 5):
        low = np.maximum(edges[:-1], centre - width / 2 + turn)
        high = np.minimum(edges[1:], centre + width / 2 + turn)
        fraction += np.maximum(high - low, 0) * n
    return fraction


CASE = Case(
    {"base": BASE},
    recompute,
    {
        "resolution": ("base", {"resolution": 20}),
        "speed": ("base", {"speed": 0.7}),
        "times": ("base", {"times": [0.4]}),
        "initial.height": ("base", {"initial.height": [0.4, 0.5]}),
        "initial.width": ("base", {"initial.width": [0.05, 0.1]}),
        "initial.centre": ("base", {"initial.centre": [-0.3, 0.2]}),
    },
    frozenset({"equation", "initial.law"}),
)
