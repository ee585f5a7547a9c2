"""The MATLAB files of the Fourier neural operator's paper: Burgers, Darcy, Navier-Stokes."""

from __future__ import annotations

import math

import numpy as np

from pdegen.foreign.arrays import Contents
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.published import (
    BURGERS,
    BURGERS_EQUATION,
    DARCY_EQUATION,
    FileEntry,
    Published,
    darcy_physics,
    named,
    shapes,
)
from pdegen.store.format import Drawing, Physics

_VORTICITY = (
    "w_t + v . grad w = viscosity Laplace w + 0.1 (sin 2 pi (x+y) + cos 2 pi (x+y)), div v = 0, "
    "curl v = w, on the torus of length 1"
)


def burgers(contents: Contents, declaration: Declaration) -> Published | None:
    """burgers_data_R10.mat. Papers print the constants of other problems; with these, ν = 0.1/2π
    to t = 1/2π, its samples are solutions."""
    found = shapes(contents, "a", "u")
    if found is None or found[0] != found[1] or found[0][1:] != (8192,):
        return None
    return Published(
        name="burgers-r10-published",
        title="Burgers, the published file burgers_data_R10.mat",
        equation=BURGERS_EQUATION,
        source="Li et al., ICLR 2021; splits of Cao, NeurIPS 2021: the first 1024, the last 100",
        grid="periodic",
        entries=(
            FileEntry("a", "a", ("sample", "x"), "initial value u(x, 0)"),
            FileEntry("u", "u", ("sample", "x"), "solution u(x, 1/2π)"),
        ),
        splits=lambda counts: {"train": 1024, "validation": 100, "test": 100},
        parameters={"viscosity": 0.1 / (2 * math.pi)},
        times=[1 / (2 * math.pi)],
        physics=BURGERS,
    )


def darcy(contents: Contents, declaration: Declaration) -> Published | None:
    """piececonst_r421_N1024_smooth1.mat and smooth2: two draws, joined in the order given."""
    found = shapes(contents, "coeff", "sol")
    if found is None or found[0] != found[1] or len(found[0]) != 3:
        return None

    def splits(counts: list[int]) -> dict[str, int]:
        if len(counts) == 1:
            return {"train": counts[0]}
        return {"train": 1024, "validation": 100, "test": 100}

    return Published(
        name="darcy-421-published-file",
        title="Darcy, the published files piececonst_r421_N1024_smooth",
        equation=DARCY_EQUATION,
        source="Li et al., ICLR 2021; splits of Cao, NeurIPS 2021: 1024, the last 100 of smooth2",
        grid="cell",
        entries=(
            FileEntry("a", "coeff", ("sample", "x", "y"), "coefficient a, 12 or 3 on each cell"),
            FileEntry("u", "sol", ("sample", "x", "y"), "solution u at the cell centre"),
        ),
        splits=splits,
        parameters={"source": 1.0},
        physics=darcy_physics(3.0, 12.0),
    )


def navier_stokes(contents: Contents, declaration: Declaration) -> Published | None:
    """NavierStokes_V1e-3_N5000_T50.mat, V1e-4 and V1e-5: vorticity at t = 1, ..., T.

    The viscosity follows from the file's name, or from T: 50, 30 and 20 for 1e-3, 1e-4 and 1e-5.
    """
    found = shapes(contents, "a", "u")
    if found is None or len(found[0]) != 3 or found[1][:-1] != found[0]:
        return None
    frames = found[1][-1]
    when = np.arange(1.0, frames + 1)
    if "t" in contents.arrays:
        when = contents.array("t").values().reshape(-1)
        if len(when) != frames:
            return None
    word = named(contents, r"V(1e-[345]|1000+)")
    number = None if word is None else float(word) if "e" in word else 1 / float(word)
    viscosity = number or {50: 1e-3, 30: 1e-4, 20: 1e-5}.get(frames)
    return Published(
        name="navier-stokes-published",
        title="Navier-Stokes, a published file of vorticity on the torus",
        equation=_VORTICITY,
        source="Li et al., ICLR 2021: the first 1000, the last 200",
        grid="periodic",
        entries=(
            FileEntry("a", "a", ("sample", "x", "y"), "vorticity w(x, y, 0)"),
            FileEntry("u", "u", ("sample", "x", "y", "time"), "vorticity w(x, y, t)"),
        ),
        splits=lambda counts: {
            "train": 1000, "validation": max(0, min(200, sum(counts) - 1200)), "test": 200,
        },
        parameters={} if viscosity is None else {"viscosity": viscosity},
        times=when,
        physics=Physics(drawing={name: Drawing("w", "diverging") for name in ("a", "u")}),
    )  # fmt: skip
