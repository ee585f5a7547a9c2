"""PDEBench's HDF5 files with one field: in one dimension, and Darcy."""

from __future__ import annotations

import math

from pdegen.foreign.arrays import Contents
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.published import (
    BURGERS,
    DARCY_EQUATION,
    FileEntry,
    Published,
    darcy_physics,
    named,
    shapes,
)
from pdegen.store.format import Physics


def trajectories(contents: Contents, declaration: Declaration) -> Published | None:
    """PDEBench in one dimension: `tensor` (sample, time, x), on a circle. The first frame is the
    input, the others are the target. Its list of times may have one more than there are frames."""
    found = shapes(contents, "tensor", "x-coordinate", "t-coordinate")
    if found is None or len(found[0]) != 3 or found[0][1] < 2:
        return None
    _, frames, n = found[0]
    if found[1] != (n,) or found[2] not in ((frames,), (frames + 1,)):
        return None
    nu, beta = (named(contents, rf"{key}([0-9.]*[0-9])") for key in ("Burgers.*Nu", "beta"))
    equation, parameters = "not known from the file's name", {}
    if nu is not None:
        equation = "u_t + u u_x = viscosity u_xx, on a circle"
        parameters = {"viscosity": float(nu) / math.pi}  # the name has π times the coefficient
    elif beta is not None:
        equation, parameters = "u_t + speed u_x = 0, on a circle", {"speed": float(beta)}
    when = contents.array("t-coordinate").values()[1:frames]
    return Published(
        name="pdebench-1d",
        title=f"PDEBench, the file {contents.path.name}",
        equation=equation,
        source="Takamoto et al., NeurIPS 2022: the first tenth is the test, the rest training",
        grid="periodic",
        entries=(
            FileEntry("a", "tensor", ("sample", "time", "x"), "initial value u(x, 0)", (0, 1)),
            FileEntry("u", "tensor", ("sample", "time", "x"), "solution u(x, t)", (1, frames)),
        ),
        splits=_first_tenth,
        parameters=parameters,
        points={"x": contents.array("x-coordinate").values()},
        times=when,
        physics=BURGERS if nu is not None else Physics(),
    )


def darcy(contents: Contents, declaration: Declaration) -> Published | None:
    """PDEBench's Darcy flow: `nu` (sample, x, y) and `tensor` (sample, 1, x, y)."""
    found = shapes(contents, "nu", "tensor", "x-coordinate", "y-coordinate")
    if found is None or len(found[0]) != 3 or found[1] != (found[0][0], 1, *found[0][1:]):
        return None
    beta = named(contents, r"beta([0-9.]*[0-9])")
    return Published(
        name="pdebench-darcy",
        title=f"PDEBench, the file {contents.path.name}",
        equation=DARCY_EQUATION,
        source="Takamoto et al., NeurIPS 2022: the first tenth is the test, the rest training",
        grid="cell",
        entries=(
            FileEntry("a", "nu", ("sample", "x", "y"), "coefficient a, 1 or 0.1 on each cell"),
            FileEntry("u", "tensor", ("sample", "", "x", "y"), "solution u at the cell centre"),
        ),
        splits=_first_tenth,
        parameters={} if beta is None else {"source": float(beta)},
        points={name: contents.array(f"{name}-coordinate").values() for name in ("x", "y")},
        physics=darcy_physics(0.1, 1.0),
    )


def _first_tenth(counts: list[int]) -> dict[str, tuple[int, int]]:
    samples = sum(counts)
    tenth = samples // 10
    test = {"test": (0, tenth)} if tenth else {}
    return {"train": (tenth, samples), **test}
