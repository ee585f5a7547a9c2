"""Published datasets in which each sample has its own geometry. They are .npy and MATLAB files from
the paper on geometry-aware Fourier neural operators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from pdegen.domains import Cloud, Curvilinear
from pdegen.formats.arrays import Contents
from pdegen.formats.published import Facts, FileEntry, Published
from pdegen.store.format import Drawing, Physics, SurfaceCurve

_CELL = "Random_UnitCell_{}_10"
_BLOCK, _FRAMES = (101, 31), 20
_POINTS, _MIXED = ("point", "part", "sample"), ("sample", "part", "i", "j")


def flow_spread(u: Float[np.ndarray, "samples i j"]) -> Float[np.ndarray, " samples"]:
    """Six times the difference between the largest and the smallest flow through the cross-sections
    of a pipe. Section i has height 1. The flow through it is the integral of the velocity u over
    the nodes j, computed by Simpson's rule."""
    weights = np.full(u.shape[2], 2.0)
    weights[1::2], weights[[0, -1]] = 4, 1
    return 6 * np.ptp(u @ (weights / weights.sum()), axis=1)


def _cloud(contents: Contents, sizes: Mapping[str, int]) -> Facts:
    return {"domain": Cloud((sizes["point"],), 2)}


def _mesh(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    size = sizes["i"], sizes["j"]
    return {"domain": Curvilinear(size, 2)} if min(size) > 1 else None


def _odd_mesh(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    """The facts about a mesh of a pipe. None if the number of nodes across the pipe is even,
    because Simpson's rule needs an odd number."""
    return _mesh(contents, sizes) if sizes["j"] % 2 else None


def _positions(name: str) -> tuple[FileEntry, ...]:
    return tuple(
        FileEntry(axis, f"{name}_{axis.upper()}", ("sample", "i", "j"),
                  f"position {axis} of each point", role="geometry")
        for axis in "xy"
    )  # fmt: skip


_ELASTICITY = Published(
    # Points, stresses, radii of the void at 42 angles, and parameters of the radius (theta).
    # Samples are the last axis; of theta the first.
    name="elasticity-published",
    title="Elasticity, the published files Random_UnitCell",
    equation="div sigma = 0 in plane stress, no displacement below, the force (0, 100) over "
    "the length above, none on the other sides",
    source="Li et al., JMLR 2023: the first 1000, the last 200",
    entries=(
        FileEntry("u", _CELL.format("sigma"), ("point", "sample"), "von Mises stress"),
        *(
            FileEntry(name, _CELL.format("XY"), _POINTS, f"position {name} of each point",
                      part=k, role="geometry")
            for k, name in enumerate("xy")
        ),
        FileEntry(
            "theta", _CELL.format("theta"), ("sample", "mode"),
            "numbers of the radius's Gaussian field: of cos φ, sin φ, cos 2φ, sin 2φ ...",
            role="parameter", optional=True,
        ),
        FileEntry(
            "radius", _CELL.format("rr"), ("angle", "sample"),
            "radius of the void at equal angles from 0 to 2π, both included",
            role="parameter", optional=True,
        ),
    ),
    sizes={"part": 2},
    splits=lambda counts: {
        "train": 1000, "validation": max(0, min(200, sum(counts) - 1200)), "test": 200,
    },
    facts=_cloud,
    physics=Physics(drawing={"u": Drawing("σ")}),
)  # fmt: skip

_PIPE = Published(
    # Nodes of bent pipes and u, v, p at these, from inlet to outlet and from the lower wall. The
    # flux identifies samples with spikes at the outlet.
    name="pipe-published",
    title="Pipe, the published files Pipe",
    equation="u . grad u = -grad p + viscosity laplace u, div u = 0 in a bent pipe of height 1",
    source="Li et al., JMLR 2023: the first 1000, the 200 after them",
    entries=(
        *(
            FileEntry(name, "Pipe_Q", _MIXED, meaning, part=k, role="target")
            for k, (name, meaning) in enumerate(
                (("u", "horizontal velocity"), ("v", "vertical velocity"), ("p", "pressure"))
            )
        ),
        *_positions("Pipe"),
        FileEntry(
            "flux", "Pipe_Q", _MIXED, "largest less smallest flow through a section, over 1/6",
            part=0, role="quality", number=flow_spread,
        ),
    ),
    sizes={"part": 3},
    splits=lambda counts: {
        "train": (0, 1000), "test": (1000, 1200),
        **({"validation": (1200, min(1400, n))} if (n := sum(counts)) > 1200 else {}),
    },
    facts=_odd_mesh,
    parameters={"viscosity": 0.005},
    physics=Physics(drawing={"u": Drawing("u"), "v": Drawing("v", "diverging"), "p": Drawing("p")}),
)  # fmt: skip

_PLASTICITY = Published(
    # Heights of the dies from left to right; positions and displacements in mm on a block whose
    # nodes are numbered from right to left and from top to bottom.
    name="plasticity-published",
    title="Plasticity, the published file plas_N987_T20",
    equation="rho dv/dt = div sigma in plane stress, sigma elastic and perfectly plastic (von "
    "Mises), under a rigid die without friction that comes down",
    source="Li et al., JMLR 2023: the first 900, the last 80; validation is out of training",
    grid="nodal",
    entries=(
        FileEntry(
            "a", "input", ("sample", "x"), "height of the die at t = 0, above each point",
            along=(("y", _BLOCK[1]),), units="mm",
        ),
        FileEntry(
            "u", "output", ("sample", "x", "y", "time", "channel"), "displacement",
            channels={"x": 2, "y": 3}, backwards=("x", "y"), units="mm",
        ),
    ),
    sizes={"x": _BLOCK[0], "y": _BLOCK[1], "time": _FRAMES, "channel": 4},
    splits=lambda counts: {
        "train": (0, sum(counts) - 160),
        "validation": (sum(counts) - 160, sum(counts) - 80),
        "test": (sum(counts) - 80, sum(counts)),
    },
    points={"x": np.linspace(-25, 25, _BLOCK[0]), "y": np.linspace(0, 15, _BLOCK[1])},
    times=np.arange(_FRAMES) * 0.1,
    physics=Physics(drawing={
        "a": Drawing("die", falls=3.0), "u": Drawing("u", "diverging", moves=True),
    }),
)  # fmt: skip

_AIRFOIL = Published(
    # Nodes of C-grids, and density, two velocities, pressure and Mach number at these.
    name="airfoil-published",
    title="Airfoils, the published files NACA_Cylinder",
    equation="the steady Euler equations of a gas around a section, at Mach 0.8",
    source="Li et al., JMLR 2023: the first 1000, a tenth of them for validation, the next 200",
    entries=(
        FileEntry("u", "NACA_Cylinder_Q", _MIXED, "Mach number", part=4),
        FileEntry("density", "NACA_Cylinder_Q", _MIXED, "density, 1 far away",
                  part=0, role="target"),
        FileEntry("pressure", "NACA_Cylinder_Q", _MIXED, "pressure, 1 far away",
                  part=3, role="target"),
        FileEntry("velocity", "NACA_Cylinder_Q", ("sample", "channel", "i", "j"), "velocity",
                  role="target", channels={"u": 1, "v": 2}),
        *_positions("NACA_Cylinder"),
    ),
    sizes={"part": 5},
    splits=lambda counts: {"train": (0, 900), "validation": (900, 1000), "test": (1000, 1200)},
    facts=_mesh,
    physics=Physics(
        drawing={
            "u": Drawing("M", contours=True, along=SurfaceCurve("M")), "density": Drawing("ρ"),
            "pressure": Drawing("p", along=SurfaceCurve("−c_p", 1.0, -0.7 * 0.8**2)),
            "velocity": Drawing("u", "diverging"),
        },
        near={"x": (-0.5, 1.5), "y": (-0.5, 0.5)},
    ),
)  # fmt: skip

MESHES = (_ELASTICITY, _PIPE, _PLASTICITY, _AIRFOIL)
