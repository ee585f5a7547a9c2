"""The .npy files of the geometry-aware Fourier neural operator's paper: shapes and fields."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from pdegen.domains import Cloud, Curvilinear
from pdegen.foreign.arrays import Contents, ForeignError
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.published import FileEntry, Published, shapes
from pdegen.store.format import Along, Drawing, Physics
from pdegen.store.store import Store

_CELL = "Random_UnitCell_{}_10"
_BLOCK, _FRAMES = (101, 31), 20
_ORIGIN = {"x": -24.65, "y": -0.1}  # of the published positions, mm: the middle of the floor


def elasticity(contents: Contents, declaration: Declaration) -> Published | None:
    """Random_UnitCell_XY_10.npy and Random_UnitCell_sigma_10.npy, and if they are given _rr_10 and
    _theta_10: points, stresses, radii of the void at 42 angles, numbers of the radius. Samples are
    on the last axis, of theta on the first."""
    points, stress, radius, theta = (_CELL.format(word) for word in ("XY", "sigma", "rr", "theta"))
    found = shapes(contents, points, stress)
    if found is None or len(found[0]) != 3 or found[0][1] != 2 or found[1] != found[0][::2]:
        return None
    at = ("point", "part", "sample")
    entries = [
        FileEntry("u", stress, ("point", "sample"), "von Mises stress"),
        *(
            FileEntry(name, points, at, f"position {name} of each point", None, k, "geometry")
            for k, name in enumerate("xy")
        ),
    ]
    said = "numbers of the radius's Gaussian field: of cos φ, sin φ, cos 2φ, sin 2φ ..."
    if theta in contents.arrays:
        axes = ("sample", "mode")
        entries.append(FileEntry("theta", theta, axes, said, role="parameter"))
    if radius in contents.arrays:
        said = "radius of the void at equal angles from 0 to 2π, both included"
        entries.append(FileEntry("radius", radius, ("angle", "sample"), said, role="parameter"))
    return Published(
        name="elasticity-published",
        title="Elasticity, the published files Random_UnitCell",
        equation="div sigma = 0 in plane stress, no displacement below, the force (0, 100) over "
        "the length above, none on the other sides",
        source="Li et al., JMLR 2023: the first 1000, the last 200",
        grid="",
        entries=tuple(entries),
        splits=lambda counts: {
            "train": 1000, "validation": max(0, min(200, sum(counts) - 1200)), "test": 200,
        },
        parameters={},
        physics=Physics(drawing={"u": Drawing("σ")}),
        domain=Cloud(found[0][:1], 2),
    )  # fmt: skip


def pipe(contents: Contents, declaration: Declaration) -> Published | None:
    """Pipe_X.npy, Pipe_Y.npy and Pipe_Q.npy: nodes of bent pipes, and u, v, p there, inlet first
    and lower wall first. The flux shows samples with spikes at the outlet."""
    size = _nodes(contents, "Pipe", 3)
    if size is None or size[1] % 2 == 0:
        return None
    mixed = ("sample", "part", "i", "j")
    said = ("horizontal velocity", "vertical velocity", "pressure")
    flux = "largest less smallest flow through a section, over 1/6"
    return Published(
        name="pipe-published",
        title="Pipe, the published files Pipe",
        equation="u . grad u = -grad p + viscosity laplace u, div u = 0 in a bent pipe of height 1",
        source="Li et al., JMLR 2023: the first 1000, the 200 after them",
        grid="",
        entries=(
            *(
                FileEntry(name, "Pipe_Q", mixed, said[k], part=k, role="target")
                for k, name in enumerate("uvp")
            ),
            *_positions("Pipe"),
            FileEntry("flux", "Pipe_Q", mixed, flux, part=0, role="quality", number=flow_spread),
        ),
        splits=lambda counts: {
            "train": (0, 1000), "test": (1000, 1200),
            **({"validation": (1200, min(1400, n))} if (n := sum(counts)) > 1200 else {}),
        },
        parameters={"viscosity": 0.005},
        physics=Physics(
            drawing={"u": Drawing("u"), "v": Drawing("v", "diverging"), "p": Drawing("p")}
        ),
        domain=Curvilinear(size, 2),
    )  # fmt: skip


def flow_spread(u: Float[np.ndarray, "samples i j"]) -> Float[np.ndarray, " samples"]:
    """The spread of the flow through the sections i, of height 1: Simpson's rule over nodes j."""
    weights = np.full(u.shape[2], 2.0)
    weights[1::2], weights[[0, -1]] = 4, 1
    return 6 * np.ptp(u @ (weights / weights.sum()), axis=1)


def plasticity(contents: Contents, declaration: Declaration) -> Published | None:
    """plas_N987_T20.mat: the heights of the dies, and positions and displacements in mm on a block
    that is numbered from the right and from above. Heights are given from the left, over the
    origin of the positions: the floor is at -0.1 mm."""
    found = shapes(contents, "input", "output")
    if found is None or found[1][1:] != (*_BLOCK, _FRAMES, 4) or found[0] != found[1][:2]:
        return None
    x, y = np.linspace(-25, 25, _BLOCK[0]), np.linspace(0, 15, _BLOCK[1])
    return Published(
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
        splits=lambda counts: {
            "train": (0, sum(counts) - 160),
            "validation": (sum(counts) - 160, sum(counts) - 80),
            "test": (sum(counts) - 80, sum(counts)),
        },
        points={"x": x, "y": y},
        times=np.arange(_FRAMES) * 0.1,
        physics=Physics(drawing={
            "a": Drawing("die", falls=3.0), "u": Drawing("u", "diverging", moves=True),
        }),
    )  # fmt: skip


def published_blocks(store: Store) -> dict[str, np.ndarray]:
    """The two arrays of plas_N987_T20.mat, made of a store of forged blocks: the inverse of
    `plasticity`, on any number of points.

    Returns:
        input: (samples, i) heights of the dies.
        output: (samples, i, j, time, 4) positions x and y, and displacements along them, in mm;
            without their drift where the store has none in u.

    Raises:
        ForeignError: If the store has not the variables of forged blocks.
    """
    if not {"a", "u", "x", "y"} <= set(store.arrays) or store.array("u").ndim != 5:
        raise ForeignError(f"{store.url} is no store of forged blocks: it has no dies or frames")
    samples = range(store.samples)
    u = store.values("u", samples)[..., ::-1, ::-1].transpose(0, 3, 4, 1, 2)
    x, y = (np.asarray(store.array(name)[...])[::-1] + _ORIGIN[name] for name in "xy")
    rest = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).astype(u.dtype)
    output = np.concatenate([rest[:, :, None] + u, u], axis=-1)
    return {"input": store.values("a", samples)[..., 0], "output": output}


def airfoil(contents: Contents, declaration: Declaration) -> Published | None:
    """NACA_Cylinder_X.npy, NACA_Cylinder_Y.npy and NACA_Cylinder_Q.npy: the nodes of C-grids and
    density, two velocities, pressure and Mach number there."""
    size = _nodes(contents, "NACA_Cylinder", 5)
    if size is None:
        return None
    state, parts = "NACA_Cylinder_Q", ("sample", "part", "i", "j")
    return Published(
        name="airfoil-published",
        title="Airfoils, the published files NACA_Cylinder",
        equation="the steady Euler equations of a gas around a section, at Mach 0.8",
        source="Li et al., JMLR 2023: the first 1000, a tenth of them for validation, the next 200",
        grid="",
        entries=(
            FileEntry("u", state, parts, "Mach number", part=4),
            FileEntry("density", state, parts, "density, 1 far away", part=0, role="target"),
            FileEntry("pressure", state, parts, "pressure, 1 far away", part=3, role="target"),
            FileEntry("velocity", state, ("sample", "channel", "i", "j"), "velocity",
                      role="target", channels={"u": 1, "v": 2}),
            *_positions("NACA_Cylinder"),
        ),
        splits=lambda counts: {"train": (0, 900), "validation": (900, 1000), "test": (1000, 1200)},
        parameters={},
        physics=Physics(
            drawing={
                "u": Drawing("M", contours=True, along=Along("M")), "density": Drawing("ρ"),
                "pressure": Drawing("p", along=Along("−c_p", 1.0, -0.7 * 0.8**2)),
                "velocity": Drawing("u", "diverging"),
            },
            near={"x": (-0.5, 1.5), "y": (-0.5, 0.5)},
        ),
        domain=Curvilinear(size, 2),
    )  # fmt: skip


def _nodes(contents: Contents, name: str, parts: int) -> tuple[int, int] | None:
    """The size of the meshes of NAME_X.npy and NAME_Y.npy, where NAME_Q.npy has so many functions
    of their nodes; else None."""
    found = shapes(contents, *(f"{name}_{word}" for word in "XYQ"))
    if found is None or len(found[0]) != 3 or min(found[0][1:]) < 2:
        return None
    x, y, q = found
    samples, *size = x
    return (size[0], size[1]) if (y, q) == (x, (samples, parts, *size)) else None


def _positions(name: str) -> Iterator[FileEntry]:
    for one in "xy":
        said = f"position {one} of each point"
        yield FileEntry(one, f"{name}_{one.upper()}", ("sample", "i", "j"), said, role="geometry")
