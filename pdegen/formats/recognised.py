"""The published datasets that are recognised.

A file is recognised by its keys and shapes. If several datasets share these, the name of the file
decides. Facts about datasets come from the cited papers and from the programs that generated the
data. Where a file contradicts them, the content of the file is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pdegen.domains import PeriodicGrid
from pdegen.formats import well
from pdegen.formats.arrays import Contents
from pdegen.formats.import_options import ImportOptions
from pdegen.formats.meshes import MESHES
from pdegen.formats.plan import Plan
from pdegen.formats.published import Facts, FileEntry, Published, no_facts, plan
from pdegen.store.format import Drawing, Physics

_BURGERS_EQUATION = "u_t + u u_x = viscosity u_xx, x on the circle of length 1"
_DARCY_EQUATION = "-div(a grad u) = source on (0,1)^2, u = 0 on the boundary"
_VORTICITY = (
    "w_t + v . grad w = viscosity Laplace w + 0.1 (sin 2 pi (x+y) + cos 2 pi (x+y)), div v = 0, "
    "curl v = w, on the torus of length 1"
)
_BURGERS = Physics(
    symmetries=("shift", "odd-reflection"), drawing={"a": Drawing("a"), "u": Drawing("u")}
)


def _darcy_physics(low: float, high: float) -> Physics:
    """Facts about Darcy's equation. The coefficient a has only the two values `low` and `high`."""
    return Physics(
        boundary={"u": 0.0},
        symmetries=("square",),
        loss_weight="a",
        phases={"a": (low, high)},
        drawing={"a": Drawing("a", "phases", log=True), "u": Drawing("u")},
    )


def _named(contents: Contents, pattern: str) -> str | None:
    """Search the name of the file for a pattern. Returns the first group, or None if there is no
    match."""
    match = re.search(pattern, contents.path.name)
    return match.group(1) if match else None


# the Fourier neural operator's paper, MATLAB


def _joined_draws(counts: list[int]) -> dict[str, int]:
    if len(counts) == 1:
        return {"train": counts[0]}
    return {"train": 1024, "validation": 100, "test": 100}


def _vorticity(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    """The times and the viscosity of a file. If the file has no times, they are 1, ..., T for T
    frames. The viscosity is read from the name of the file. If the name does not contain it, it is
    determined by T."""
    frames = sizes["time"]
    times = np.arange(1.0, frames + 1)
    if "t" in contents.arrays:
        times = contents.array("t").values().reshape(-1)
        if len(times) != frames:
            return None
    word = _named(contents, r"V(1e-[345]|1000+)")
    number = None if word is None else float(word) if "e" in word else 1 / float(word)
    viscosity = number or {50: 1e-3, 30: 1e-4, 20: 1e-5}.get(frames)
    return {"times": times, "parameters": {} if viscosity is None else {"viscosity": viscosity}}


_FNO = (
    Published(
        # Papers print constants of other problems; with the ones below, the samples are solutions.
        name="burgers-r10-published",
        title="Burgers, the published file burgers_data_R10.mat",
        equation=_BURGERS_EQUATION,
        source="Li et al., ICLR 2021; splits of Cao, NeurIPS 2021: the first 1024, the last 100",
        grid="periodic",
        entries=(
            FileEntry("a", "a", ("sample", "x"), "initial value u(x, 0)"),
            FileEntry("u", "u", ("sample", "x"), "solution u(x, 1/2π)"),
        ),
        sizes={"x": 8192},
        splits=lambda counts: {"train": 1024, "validation": 100, "test": 100},
        parameters={"viscosity": 0.1 / (2 * math.pi)},
        times=[1 / (2 * math.pi)],
        physics=_BURGERS,
    ),
    Published(
        # piececonst_r421_N1024_smooth1.mat and smooth2: two draws, joined in the order given
        name="darcy-421-published-file",
        title="Darcy, the published files piececonst_r421_N1024_smooth",
        equation=_DARCY_EQUATION,
        source="Li et al., ICLR 2021; splits of Cao, NeurIPS 2021: 1024, the last 100 of smooth2",
        grid="cell",
        entries=(
            FileEntry("a", "coeff", ("sample", "x", "y"), "coefficient a, 12 or 3 on each cell"),
            FileEntry("u", "sol", ("sample", "x", "y"), "solution u at the cell centre"),
        ),
        splits=_joined_draws,
        parameters={"source": 1.0},
        physics=_darcy_physics(3.0, 12.0),
    ),
    Published(
        # NavierStokes_V1e-3_N5000_T50.mat, V1e-4 and V1e-5
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
            "train": 1000,
            "validation": max(0, min(200, sum(counts) - 1200)),
            "test": 200,
        },
        facts=_vorticity,
        physics=Physics(drawing={name: Drawing("w", "diverging") for name in ("a", "u")}),
    ),
)

# PDEBench, HDF5


_WRONG_REACTION = (
    "the labels of PDEBench's reaction-diffusion files are wrong: time steps of about 1e-7 in "
    "float32 round the reaction away (mean of u at t = 0.5 for Nu0.5_Rho1.0: 0.5625, exact 0.6217)"
)


def _first_tenth(counts: list[int]) -> dict[str, tuple[int, int]]:
    samples = sum(counts)
    tenth = samples // 10
    test = {"test": (0, tenth)} if tenth else {}
    return {"train": (tenth, samples), **test}


def _on_a_line(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    """Facts about a 1-D file of PDEBench. The list of times in such a file may have one entry more
    than there are frames."""
    frames, arrays = sizes["time"], contents.arrays
    if frames < 2 or not {"x-coordinate", "t-coordinate"} <= arrays.keys():
        return None
    if arrays["x-coordinate"].shape != (sizes["x"],) or arrays["t-coordinate"].shape not in (
        (frames,), (frames + 1,)
    ):  # fmt: skip
        return None
    nu, beta = (_named(contents, rf"{key}([0-9.]*[0-9])") for key in ("Burgers.*Nu", "beta"))
    diffusion, growth = (
        _named(contents, rf"ReacDiff.*{key}([0-9.]*[0-9])") for key in ("Nu", "Rho")
    )
    facts: Facts = {"equation": "not known from the file's name"}
    if diffusion is not None and growth is not None:
        facts = {
            "equation": "u_t = diffusion u_xx + growth u (1 - u), on a circle",
            "parameters": {"diffusion": float(diffusion), "growth": float(growth)},
            "warning": _WRONG_REACTION,
        }
    elif nu is not None:
        facts = {
            "equation": "u_t + u u_x = viscosity u_xx, on a circle",
            "parameters": {
                "viscosity": float(nu) / math.pi
            },  # the name of the file has π times the viscosity
            "physics": _BURGERS,
        }
    elif beta is not None:
        facts = {
            "equation": "u_t + speed u_x = 0, on a circle",
            "parameters": {"speed": float(beta)},
        }
    return facts | {
        "title": f"PDEBench, the file {contents.path.name}",
        "points": {"x": contents.array("x-coordinate").values()},
        "times": contents.array("t-coordinate").values()[1:frames],
    }


def _on_the_square(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    points = {axis: contents.arrays.get(f"{axis}-coordinate") for axis in ("x", "y")}
    if any(x is None or x.shape != (sizes[axis],) for axis, x in points.items()):
        return None
    beta = _named(contents, r"beta([0-9.]*[0-9])")
    return {
        "title": f"PDEBench, the file {contents.path.name}",
        "parameters": {} if beta is None else {"source": float(beta)},
        "points": {name: contents.array(f"{name}-coordinate").values() for name in ("x", "y")},
    }


_PDEBENCH = (
    Published(
        name="pdebench-1d",
        title="",
        equation="",
        source="Takamoto et al., NeurIPS 2022: the first tenth is the test, the rest training",
        grid="periodic",
        entries=(
            FileEntry("a", "tensor", ("sample", "time", "x"), "initial value u(x, 0)", (0, 1)),
            FileEntry("u", "tensor", ("sample", "time", "x"), "solution u(x, t)", (1, None)),
        ),
        splits=_first_tenth,
        facts=_on_a_line,
    ),
    Published(
        name="pdebench-darcy",
        title="",
        equation=_DARCY_EQUATION,
        source="Takamoto et al., NeurIPS 2022: the first tenth is the test, the rest training",
        grid="cell",
        entries=(
            FileEntry("a", "nu", ("sample", "x", "y"), "coefficient a, 1 or 0.1 on each cell"),
            FileEntry("u", "tensor", ("sample", "", "x", "y"), "solution u at the cell centre"),
        ),
        sizes={"": 1},
        splits=_first_tenth,
        facts=_on_the_square,
        physics=_darcy_physics(0.1, 1.0),
    ),
)

# the small .pt files that the package neuraloperator ships


def _last_file(counts: list[int]) -> dict[str, int]:
    if len(counts) == 1:
        return {"train": counts[0]}
    return {"train": sum(counts[:-1]), "test": counts[-1]}


def _viscosity(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    if "visc" not in contents.arrays:
        return None
    return {"parameters": {"viscosity": float(contents.array("visc").values().reshape(-1)[0])}}


def _every_nth_node(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    """Positions of the points: every 26th (n = 16) or every 13th (n = 32) of 421 nodes.

    The authors of the files document nothing else about them.
    """
    n = sizes["x"]
    if contents.arrays["x"].dtype != bool or n not in (16, 32):
        return None
    points, every = np.arange(n) * (416 // n) / 420, 416 // n
    source = f"one file for training, one for tests; every {every}th of 421 nodes"
    return {
        "points": {"x": points, "y": points},
        "source": f"neuraloperator: {source}, the last left out",
    }


_NEURALOP = (
    Published(
        # burgers_lowres.pt: u at x = j/16, the first time is the input
        name="neuralop-burgers",
        title="Burgers, the small file of neuraloperator",
        equation=_BURGERS_EQUATION,
        source="neuraloperator, data of PINO: 800 for training, 400 for tests",
        grid="periodic",
        entries=(
            FileEntry("a", "input", ("sample", "x"), "initial value u(x, 0)"),
            FileEntry("u", "output", ("sample", "time", "x"), "solution u(x, t)"),
        ),
        sizes={"time": 17},
        splits=lambda counts: {"train": 800, "test": 400},
        facts=_viscosity,
        times=np.arange(17) * 0.06,
        physics=_BURGERS,
    ),
    Published(
        # darcy_train_16.pt and darcy_test_16.pt, or 32: joined, the last file is the test. The
        # coefficient is true or false; its values, the source and the scale of u are not
        # documented.
        name="neuralop-darcy",
        title="Darcy, the small files of neuraloperator",
        equation="-div(a grad u) = f on (0,1)^2; the values of a and f are not documented",
        source="",
        grid="nodal",
        entries=(
            FileEntry("a", "x", ("sample", "x", "y"), "phase of the coefficient, 0 or 1"),
            FileEntry("u", "y", ("sample", "x", "y"), "solution u, scaled"),
        ),
        splits=_last_file,
        facts=_every_nth_node,
    ),
)

# the cost-accuracy study, .npy with samples on the last axis; without structural mechanics, whose
# input and output have different grids


def _halves(counts: list[int]) -> dict[str, int]:
    samples = sum(counts)
    return {"train": samples // 2, "test": samples - samples // 2}


def _two_pi(contents: Contents, sizes: Mapping[str, int]) -> Facts:
    return {"points": {axis: 2 * math.pi * PeriodicGrid(sizes[axis]).x for axis in ("x", "y")}}


_COST_ACCURACY = tuple(
    Published(
        name=f"cost-accuracy-{stem.lower()}",
        title=f"{stem}, the published files {stem}_inputs.npy and {stem}_outputs.npy",
        equation=equation,
        source="de Hoop et al. 2022: the first half for training, the second for tests",
        grid=grid,
        entries=(
            FileEntry("a", f"{stem}_inputs", (*axes, "sample"), input),
            FileEntry("u", f"{stem}_outputs", (*axes, "sample"), target),
        ),
        splits=_halves,
        facts=_two_pi if grid == "periodic" else no_facts,
    )
    for stem, axes, grid, equation, input, target in (
        (
            "Advection", "x", "nodal",
            "u_t + u_x = 0 on a circle of length 1 (its first point is also its last), to t = 1/2",
            "initial value, -1 or 1", "solution u(x, 1/2)",
        ),
        (
            "Helmholtz", "xy", "nodal",
            "-Laplace u - (1000/c)^2 u = 0 on (0,1)^2, du/dn = 1 in the middle of the top, 0 else",
            "wave speed c", "solution u",
        ),
        (
            "NavierStokes", "xy", "periodic",
            "w_t + v . grad w = Laplace w / 40 + curl f on the torus of length 2 pi, to t = 10",
            "forcing curl f", "vorticity w at t = 10",
        ),
    )
)  # fmt: skip

_DATASETS = (*_FNO, *_PDEBENCH, *_NEURALOP, *_COST_ACCURACY, *MESHES)


def recognised_plan(files: Sequence[Contents], import_options: ImportOptions) -> Plan | None:
    """The import plan of recognised files. None for other files. Raises FormatError if the files do
    not fit together, or if they differ from the published files."""
    grid_and_splits = ImportOptions(grid=import_options.grid, splits=import_options.splits)
    recognisers = [dataset.of for dataset in _DATASETS]
    if import_options != grid_and_splits:  # the user describes the arrays
        recognisers = []
    chosen = replace(grid_and_splits, input=import_options.input, target=import_options.target)
    if import_options == chosen:
        recognisers.append(lambda contents: well.trajectories(contents, import_options))
    for recognise in recognisers:
        datasets = [dataset for file in files if (dataset := recognise(file)) is not None]
        if datasets and len(datasets) == len(files):
            return plan(datasets, files, import_options)
    return None
