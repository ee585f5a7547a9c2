"""The small .pt files that the package neuraloperator ships."""

from __future__ import annotations

import numpy as np

from pdegen.foreign.arrays import Contents
from pdegen.foreign.declaration import Declaration
from pdegen.foreign.published import BURGERS, BURGERS_EQUATION, FileEntry, Published, shapes


def burgers(contents: Contents, declaration: Declaration) -> Published | None:
    """burgers_lowres.pt: u at x = j/16 and t = 0, 0.06, ..., 0.96, the first time the input."""
    found = shapes(contents, "input", "output", "visc")
    if found is None or len(found[0]) != 2 or found[1] != (found[0][0], 17, found[0][1]):
        return None
    return Published(
        name="neuralop-burgers",
        title="Burgers, the small file of neuraloperator",
        equation=BURGERS_EQUATION,
        source="neuraloperator, data of PINO: 800 for training, 400 for tests",
        grid="periodic",
        entries=(
            FileEntry("a", "input", ("sample", "x"), "initial value u(x, 0)"),
            FileEntry("u", "output", ("sample", "time", "x"), "solution u(x, t)"),
        ),
        splits=lambda counts: {"train": 800, "test": 400},
        parameters={"viscosity": float(contents.array("visc").values().reshape(-1)[0])},
        times=np.arange(17) * 0.06,
        physics=BURGERS,
    )


def darcy(contents: Contents, declaration: Declaration) -> Published | None:
    """darcy_train_16.pt and darcy_test_16.pt, or 32: joined, the last file is the test.

    Which of 421 points were kept, every 26th or 13th, is all that is known; the coefficient is
    true or false, its values, the source and the scale of u are not documented.
    """
    found = shapes(contents, "x", "y")
    if found is None or found[0] != found[1] or len(found[0]) != 3:
        return None
    n = found[0][1]
    if contents.arrays["x"].dtype != bool or n not in (16, 32):
        return None
    where = np.arange(n) * (416 // n) / 420
    return Published(
        name="neuralop-darcy",
        title="Darcy, the small files of neuraloperator",
        equation="-div(a grad u) = f on (0,1)^2; the values of a and f are not documented",
        source=f"neuraloperator: one file for training, one for tests; every {416 // n}th of 421 "
        "nodes, the last left out",
        grid="nodal",
        entries=(
            FileEntry("a", "x", ("sample", "x", "y"), "phase of the coefficient, 0 or 1"),
            FileEntry("u", "y", ("sample", "x", "y"), "solution u, scaled"),
        ),
        splits=_last_file,
        points={"x": where, "y": where},
    )


def _last_file(counts: list[int]) -> dict[str, int]:
    if len(counts) == 1:
        return {"train": counts[0]}
    return {"train": sum(counts[:-1]), "test": counts[-1]}
