"""The .npy files of the cost-accuracy study of de Hoop, Huang, Qian and Stuart (2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdegen.domains import GRIDS
from pdegen.foreign.arrays import Contents
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.published import FileEntry, Published, shapes


@dataclass(frozen=True)
class _Problem:
    """One of its maps: the beginning of the files' names, axes, points, and what is what."""

    stem: str
    axes: tuple[str, ...]
    grid: str
    equation: str
    input: str
    target: str
    length: float = 1.0  # of the axes


_PROBLEMS = (
    _Problem(
        "Advection", ("x",), "nodal",
        "u_t + u_x = 0 on a circle of length 1 (its first point is also its last), to t = 1/2",
        "initial value, -1 or 1", "solution u(x, 1/2)",
    ),
    _Problem(
        "Helmholtz", ("x", "y"), "nodal",
        "-Laplace u - (1000/c)^2 u = 0 on (0,1)^2, du/dn = 1 in the middle of the top, 0 else",
        "wave speed c", "solution u",
    ),
    _Problem(
        "NavierStokes", ("x", "y"), "periodic",
        "w_t + v . grad w = Laplace w / 40 + curl f on the torus of length 2 pi, to t = 10",
        "forcing curl f", "vorticity w at t = 10", 2 * math.pi,
    ),
)  # fmt: skip


def _halves(counts: list[int]) -> dict[str, int]:
    samples = sum(counts)
    return {"train": samples // 2, "test": samples - samples // 2}


def pairs(contents: Contents, declaration: Declaration) -> Published | None:
    """STEM_inputs.npy and STEM_outputs.npy, the samples on the last axis: half of them for
    training, half for tests. Not the structural mechanics, whose two grids differ."""
    for one in _PROBLEMS:
        input, target = f"{one.stem}_inputs", f"{one.stem}_outputs"
        found = shapes(contents, input, target)
        if found is None or found[0] != found[1] or len(found[0]) != len(one.axes) + 1:
            continue
        axes = (*one.axes, "sample")
        return Published(
            name=f"cost-accuracy-{one.stem.lower()}",
            title=f"{one.stem}, the published files {input}.npy and {target}.npy",
            equation=one.equation,
            source="de Hoop et al. 2022: the first half for training, the second for tests",
            grid=one.grid,
            entries=(
                FileEntry("a", input, axes, one.input),
                FileEntry("u", target, axes, one.target),
            ),
            splits=_halves,
            points={
                dim: one.length * GRIDS[one.grid](n).x
                for dim, n in zip(one.axes, found[0], strict=False)
            },
        )
    return None
