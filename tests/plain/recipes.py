"""The smallest form of each shipped recipe that its solver allows.

Three samples are the fewest that three splits allow. A recipe that is solved in seconds needs no
other change, and no line here. A grid of `resolution` points holds the modes
of its initial values, and divides that of the solver, which meets its tolerance; where the error
of a coarser one is too large, the time is shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdegen.shipped import recipe_names


@dataclass(frozen=True)
class Small:
    """Changes of a recipe.

    Args:
        changes: Values by key, as `--set` takes them.
        why: What keeps it from being smaller, where it costs more than some seconds.
        lacks: The word that the one line of its refusal has, where a plain installation cannot
            make it.
    """

    changes: Mapping[str, object] = field(default_factory=dict)
    why: str = ""
    lacks: str = ""

    def options(self) -> list[str]:
        """The options of `pdegen generate`."""
        changes = {"samples": 3, **self.changes}
        return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]


_BURGERS = {"resolution": 64, "modes": 31, "solver.resolution": 256}
_CELLS = {"resolution": 64}
_DARCY = {"resolution": 31, "modes": 31}
_FITTED = {"resolution": 16, "elements": 8}
_PIPE = {"resolution": 33}
_SHEET = {"resolution": 12}
_FORGED = {"resolution": 21, "frames": 2, "solver.share": 0.5}
_SLOW_FLOW = {"resolution": 176, "mach": 0.3, "tolerance": 1e-4}
_KOLMOGOROV = {"problem.resolution": 32, "modes": 15, "burn_in": 0.1, "times": [0.1],
               "solver.resolution": 96, "dt": 0.01}  # fmt: skip
_TORUS = {"resolution": 16, "modes": 7, "times": [0.1]}

CHANGED = {
    "airfoil": Small(_SLOW_FLOW, why="its grids have at least 176 cells along the section"),
    "airfoil-quick": Small(_SLOW_FLOW, why="its grids have at least 176 cells along the section"),
    "allen-cahn": Small({"resolution": 16, "modes": 3, "solver.resolution": 64, "times": [1.0]}),
    "burgers-2d": Small({"resolution": 16, "modes": 7, "times": [0.1]}),
    "burgers-quick": Small(_BURGERS),
    "burgers-r10": Small(_BURGERS),
    "burgers-r10-as-printed": Small(_BURGERS),
    "burgers-nu": Small({**_BURGERS, "solver.resolution": 512, "times": [0.1]}),
    "burgers-shock": Small({**_BURGERS, "solver.resolution": 1024, "times": [0.1]}),
    "burgers-trajectory": Small(_BURGERS),
    "darcy-128-published": Small(_DARCY),
    "darcy-141": Small(_DARCY),
    "inverse-darcy-1": Small(_DARCY),
    "darcy-421": Small(_DARCY),
    "darcy-421-published": Small(_DARCY),
    "darcy-85": Small(_DARCY),
    "darcy-contrast": Small(_DARCY),
    "darcy-fem": Small(_DARCY, lacks="dolfinx"),
    "darcy-inclusion": Small(_FITTED, lacks="dolfinx"),
    "darcy-inclusion-quick": Small(_FITTED, lacks="dolfinx"),
    "darcy-lognormal": Small(_DARCY),
    "darcy-quick": Small(_DARCY),
    "darcy-source": Small({"resolution": 31, "field.modes": 31}),
    "elasticity": Small(_SHEET),
    "elasticity-certified": Small(_SHEET),
    "elasticity-hyperelastic": Small(_SHEET),
    "elasticity-quick": Small(_SHEET),
    "fisher-kpp": Small({"times": [0.2]}),
    "gray-scott": Small({"resolution": 16, "modes": 3, "solver.resolution": 128, "times": [10.0]}),
    "heat": Small({"resolution": 16, "modes": 7, "solver.resolution": 16}),
    "inviscid-burgers": Small(_CELLS),
    "inviscid-burgers-quick": Small(_CELLS),
    "kdv": Small({"times": [0.2]}),
    "kuramoto-sivashinsky": Small({"times": [2.0]}),
    "kolmogorov-200": Small(_KOLMOGOROV),
    "kolmogorov-500": Small(_KOLMOGOROV),
    "membrane-64": Small({"resolution": 16, "refinement": 3}),
    "ns-1e-3": Small({**_TORUS, "solver.resolution": 48}),
    "ns-1e-4": Small({**_TORUS, "solver.resolution": 32}),
    "ns-1e-5": Small({**_TORUS, "solver.resolution": 64}),
    "ns-decaying-nu": Small({**_TORUS, "burn_in": 0.2, "solver.resolution": 64}),
    "ns-nu": Small({**_TORUS, "solver.resolution": 48}),
    "ns-quick": Small({**_TORUS, "solver.resolution": 48}),
    "pipe": Small(_PIPE),
    "pipe-quick": Small(_PIPE),
    "plasticity": Small(_FORGED),
    "plasticity-quick": Small(_FORGED),
    "pulses": Small(_CELLS),
    "pulses-quick": Small(_CELLS),
    "shock-tube": Small(_CELLS),
    "shock-tube-quick": Small(_CELLS),
    "swift-hohenberg": Small({
        "resolution": 16, "modes": 5, "solver.resolution": 64, "length": 20.0, "times": [2.0],
    }),
}  # fmt: skip
SMALL = {name: CHANGED.get(name, Small()) for name in recipe_names()}
