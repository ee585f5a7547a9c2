"""Five-point equations, assembled face by face and solved directly."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from tests.oracles import five_points
from tests.pdegen.recomputed.case import SEED, Between, Case, Content, Expected, Near, pairs

PHASES: Content = {
    "equation": "darcy", "source": 1.7, "resolution": 9,
    "field": {"law": "neumann-gaussian", "sigma": 3.0, "tau": 3.0, "alpha": 2.0, "modes": 4},
    "coefficient": {"kind": "two-phase", "above": 12.0, "below": 3.0},
    "solver": {"method": "finite-volume", "faces": "harmonic", "refinement": 1},
}  # fmt: skip
SMOOTH: Content = {
    **PHASES,
    "coefficient": {"kind": "log-normal", "scale": 1.5},
    "field": {**PHASES["field"], "law": "dirichlet-gaussian", "sigma": 20.0},
}


MANY: Content = {
    **PHASES,
    "source": {
        "law": "neumann-gaussian", "sigma": 9.0, "tau": 2.0, "alpha": 1.8, "modes": 5, "mean": 0.7,
    },
    "walls": -0.3,
    "coefficient": {"kind": "phases", "values": [2.0, 0.5, 8.0], "thresholds": [-0.3, 0.4]},
    "solver": {"method": "finite-volume", "faces": "harmonic", "refinement": 3},
}  # fmt: skip
BLOCKS: Content = {
    **SMOOTH,
    "resolution": 12,
    "field": {"law": "block-gaussian", "sigma": 1.2, "blocks": 3},
    "solver": {"method": "finite-volume", "faces": "harmonic", "refinement": 3},
}
# seed of the random stream of the source: the first 8 bytes of BLAKE2b of "SEED source"
SOURCE = int.from_bytes(blake2b(b"3 source", digest_size=8).digest(), "little")


def recompute(content: Content, seed: int, samples: range) -> Expected:
    n, solver, how = content["resolution"], content["solver"], content["coefficient"]
    means = {"harmonic": lambda v, w: 2 * v * w / (v + w), "arithmetic": lambda v, w: (v + w) / 2}
    g = np.stack([_field(content["field"], n, seed, sample) for sample in samples])
    if how["kind"] == "two-phase":
        a = np.where(g >= 0, how["above"], how["below"])
    elif how["kind"] == "phases":
        a = np.array(how["values"])[np.digitize(g, how["thresholds"])]
    else:
        a = how["scale"] * np.exp(g)
    factor, source, walls = solver["refinement"], content["source"], content.get("walls", 0.0)
    if isinstance(source, dict):
        assert seed == SEED == 3
        f = source["mean"] + np.stack([_field(source, n, SOURCE, sample) for sample in samples])
    else:
        f = np.full(a.shape, source)
    a, f = (values.astype(np.float32).astype(float) for values in (a, f))

    def solved(factor: int) -> np.ndarray:
        u = []
        for one, of in zip(a, f, strict=True):
            fine, of = (np.kron(cells, np.ones((factor, factor))) for cells in (one, of))
            on_fine = five_points.solve(fine, of, mean=means[solver["faces"]])
            u.append(walls + on_fine[factor // 2 :: factor, factor // 2 :: factor])
        return np.array(u)

    u, loose = solved(factor), solver["rtol"] > 1e-6
    expected: dict[str, Near | Between] = {
        "a": Near(a, 1e-6),
        "u": Near(u, 1e-2 if loose else 1e-6),
        "residual": Between(1e-6 if loose else 0.0, solver["rtol"]),
    }
    if isinstance(source, dict):
        expected["f"] = Near(f, 1e-6)
    if isinstance(source, dict) or how["kind"] == "phases" or walls or "blocks" in content["field"]:
        axes, exact = (1, 2), solved(9 * factor)
        error = np.sqrt(((u - exact) ** 2).sum(axis=axes) / (exact**2).sum(axis=axes))
        expected["error"] = Between(error / 1.6, 1.6 * error)
    return expected


def _field(law: dict, n: int, seed: int, sample: int) -> np.ndarray:
    """Σ σ (π²(p² + q²) + τ²)^(-α/2) ξ φ_p φ_q, by shells of growing max(p, q): first
    p = 0 ... s - 1 at q = s, then q = s ... 0 at p = s. Or σ ξ on blocks, row by row in y."""
    if m := law.get("blocks"):
        drawn = np.stack(pairs(seed, sample, (m * m + 1) // 2), axis=1).ravel()
        block = np.arange(n) * m // n
        return law["sigma"] * drawn[block[:, None] + m * block]
    modes, x = law["modes"], (np.arange(n) + 0.5) / n
    xi, zeta = pairs(seed, sample, (modes**2 + 1) // 2)
    drawn = np.stack([xi, zeta], axis=1).ravel()
    order = [
        pair
        for s in range(modes)
        for pair in ([(p, s) for p in range(s)] + [(s, q) for q in range(s, -1, -1)])
    ]
    neumann, g = law["law"] == "neumann-gaussian", np.zeros((n, n))
    for (p, q), number in zip(order, drawn, strict=False):
        if neumann and p == q == 0:
            continue
        waves = []
        for k in (p, q):
            angle = np.pi * (k if neumann else k + 1) * x
            size = 1.0 if neumann and k == 0 else np.sqrt(2)
            waves.append(size * (np.cos(angle) if neumann else np.sin(angle)))
        p, q = (p, q) if neumann else (p + 1, q + 1)
        operator = np.pi**2 * (p * p + q * q) + law["tau"] ** 2
        size = law["sigma"] * operator ** (-law["alpha"] / 2)
        g += size * number * np.outer(*waves)
    return g


CASE = Case(
    {"phases": PHASES, "smooth": SMOOTH, "many": MANY, "blocks": BLOCKS},
    recompute,
    {
        "resolution": ("phases", {"resolution": 12}),
        "source": ("smooth", {"source": -0.6}),
        "walls": ("many", {"walls": 2.0}),
        "field.law": ("smooth", {"field.law": "neumann-gaussian"}),
        "field.sigma": ("smooth", {"field.sigma": 12.0}),
        "field.tau": ("smooth", {"field.tau": 6.0}),
        "field.alpha": ("smooth", {"field.alpha": 1.7}),
        "field.modes": ("smooth", {"field.modes": 2}),
        "field.blocks": ("blocks", {"field.blocks": 2}),
        "coefficient.kind": ("phases", {"coefficient": {"kind": "log-normal"}}),
        "coefficient.above": ("phases", {"coefficient.above": 5.0}),
        "coefficient.below": ("phases", {"coefficient.below": 0.2}),
        "coefficient.values": ("many", {"coefficient.values": [2.0, 0.5, 5.0]}),
        "coefficient.thresholds": ("many", {"coefficient.thresholds": [-0.3, 0.1]}),
        "coefficient.scale": ("smooth", {"coefficient.scale": 0.4}),
        "solver.faces": ("phases", {"solver.faces": "arithmetic"}),
        "solver.refinement": ("phases", {"solver.refinement": 3}),
        "solver.rtol": ("smooth", {"solver.rtol": 0.03}),
    },
    frozenset({
        "equation", "solver.limit", "solver.method", "solver.element", "solver.linear",
        "solver.ranks", "solver.mode", "solver.timeout", "solver.parts",
    }),
)  # fmt: skip
