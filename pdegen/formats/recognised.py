"""The published datasets that are recognised.

A file is recognised by its keys and shapes, and where these are common, by its name or its sizes.
The values of its first sample must not contradict the equation (`Plan.contradiction`). Facts about
datasets come from the cited papers and from the programs that generated the data. Where a file
contradicts them, the content of the file is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from pdegen.domains import NAMES, Cloud, Curvilinear, Domain, PeriodicGrid
from pdegen.formats.arrays import Contents, FormatError
from pdegen.formats.plan import (
    SPACE,
    FieldPlan,
    ImportOptions,
    Plan,
    Sample,
    View,
    box,
    no_contradiction,
    numbers,
    split_sizes,
)
from pdegen.recipe import load_recipe
from pdegen.store.format import Drawing, Json, Physics, SurfaceCurve
from pdegen.store.layout import positions, times

# Descriptions of published datasets. They say how files are recognised and imported.


@dataclass(frozen=True)
class FileEntry:
    """A variable of a published dataset, and the array of the file that contains it.

    The fields `part`, `backwards`, `along` and `number` have the same meaning as in
    `pdegen.formats.plan.View`. If the end of `frames` is None, all later frames are read.
    `channels` maps the names of channels to their indices, which are adjacent. If `role` is empty,
    the variable `a` is the input and `u` the target. If `optional` is True, the file may lack the
    variable.
    """

    name: str
    key: str
    axes: tuple[str, ...]
    long_name: str
    frames: tuple[int, int | None] | None = None
    part: int | None = None
    role: str = ""
    channels: Mapping[str, int] = field(default_factory=dict[str, int])
    backwards: tuple[str, ...] = ()
    along: tuple[tuple[str, int], ...] = ()
    units: str = "1"
    beside: tuple[str, ...] = ()  # further arrays, which are further channels
    axes_beside: tuple[tuple[str, ...], ...] = ()  # their axes, if they differ from `axes`
    number: Callable[[np.ndarray], np.ndarray] | None = None
    optional: bool = False

    def views(self, contents: Contents) -> list[View]:
        """The views of this variable in the contents of a file."""
        array, channels, frames = contents.array(self.key), [*self.channels.values()], self.frames
        if frames is not None:
            frames = (frames[0], frames[1] or array.shape[self.axes.index("time")])
        view = View(
            array, self.axes, frames, self.part,
            (channels[0], channels[-1] + 1) if channels else None, self.backwards, self.along,
            self.number,
        )  # fmt: skip
        axes = (self.axes, *(self.axes_beside or [self.axes] * len(self.beside)))
        views = [
            [replace(view, array=part, axes=names) for part in contents.parts(key)]
            for key, names in zip((self.key, *self.beside), axes, strict=True)
        ]
        return [replace(first, beside=tuple(others)) for first, *others in zip(*views, strict=True)]


Facts = Json  # fields of `Published` that depend on the file


def no_facts(contents: Contents, sizes: Mapping[str, int]) -> Facts:
    """Return no facts. This is the default of `Published.facts`."""
    return {}


@dataclass(frozen=True)
class Published:
    """The description of a published dataset."""

    # name, title, equation and source, as in `pdegen.formats.plan.Plan`
    name: str
    title: str
    equation: str
    source: str
    entries: tuple[FileEntry, ...]  # the variables
    # splits of the literature, as sizes or ranges, from the number of samples in each file
    splits: Callable[[list[int]], Mapping[str, int | tuple[int, int]]]
    grid: str = ""  # grid, as in `pdegen.formats.plan.box`
    # required number of points along axes, by name
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    # values of further fields, from a file and the sizes of all axes; None if the file is not of
    # this dataset
    facts: Callable[[Contents, Mapping[str, int]], Facts | None] = no_facts
    # parameters of the equation, stored as attributes of the variables
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # positions of points along axes whose length is not 1, by name
    points: Mapping[str, np.ndarray] = field(default_factory=dict)
    times: Sequence[float] | np.ndarray = ()  # times of the target
    # facts on the equation
    physics: Physics = Physics()  # noqa: RUF009, it is frozen
    domain: Domain | None = None  # domain, if the points are not a grid
    warning: str = ""  # what is wrong with the published values, in one line
    # what its values show, in words, and in a sample what contradicts it, as in `Plan`
    evidence: str = ""
    contradiction: Callable[[Sample], str] = no_contradiction

    def of(self, contents: Contents) -> Published | None:
        """A copy of this description with the facts of a file added. None if the file is not of
        this dataset, because arrays are missing or axes have other lengths."""
        sizes: dict[str, int] = {}
        entries = [e for e in self.entries if e.key in contents.arrays or not e.optional]
        for entry in entries:
            array = contents.arrays.get(entry.key)
            if array is None or len(array.shape) != len(entry.axes):
                return None
            for axis, n in zip(entry.axes, array.shape, strict=True):
                if sizes.setdefault(axis, n) != n:
                    return None
        if any(sizes[axis] != n for axis, n in self.sizes.items()):
            return None
        for entry in entries:
            first = contents.arrays[entry.key].shape
            others = [contents.arrays.get(name) for name in entry.beside]
            if not entry.axes_beside and any(a is None or a.shape != first for a in others):
                return None
        facts = self.facts(contents, sizes)
        return None if facts is None else replace(self, entries=tuple(entries), **facts)


def plan(
    datasets: Sequence[Published], files: Sequence[Contents], import_options: ImportOptions
) -> Plan:
    """The import plan of published files. Their samples are joined.

    Args:
        datasets: The description of each file.
        files: The contents of each file.
        import_options: Grid and splits that replace the published ones.

    Raises:
        FormatError: If the files do not fit together, or differ from the published files.
    """
    first = datasets[0]
    for dataset, contents in zip(datasets, files, strict=True):
        same = dataset.points.keys() == first.points.keys()
        same = same and np.array_equal(dataset.times, first.times)
        same = same and all(np.array_equal(dataset.points[k], x) for k, x in first.points.items())
        same = same and dict(dataset.parameters) == dict(first.parameters)
        if dataset.name != first.name or not same:
            raise FormatError(
                f"{contents.path.name} ({dataset.name}) and {files[0].path.name} ({first.name}) "
                "have different points, times or parameters: they cannot be joined"
            )
    fields = tuple(
        FieldPlan(
            entry.name,
            tuple(
                view
                for d, file in zip(datasets, files, strict=True)
                for view in d.entries[i].views(file)
            ),
            _attributes(entry, first),
            "float64" if entry.number else "",
        )
        for i, entry in enumerate(first.entries)
    )
    if first.domain is not None and import_options.grid is not None:
        raise FormatError(
            f"{files[0].path.name}: the points are a {first.domain.kind}, not a grid: leave "
            f"{import_options.grid!r} out"
        )
    keys = dict.fromkeys(key for entry in first.entries for key in (entry.key, *entry.beside))
    domain = first.domain or box(import_options.grid or first.grid, fields[0].space, first.points)
    return Plan(
        name=first.name,
        title=first.title,
        equation=first.equation,
        source=first.source,
        fields=fields,
        coordinates=(
            numbers(fields[0].samples),
            *positions(domain),
            *([times(first.times)] if len(first.times) else []),
        ),
        splits=_splits(first, fields[0], import_options),
        domain=domain,
        physics=first.physics,
        warning=first.warning,
        recognised_by=", ".join(filter(None, [f"arrays {', '.join(keys)}", first.evidence])),
        contradiction=first.contradiction,
    )  # fmt: skip


def _attributes(entry: FileEntry, dataset: Published) -> Json:
    role = entry.role or {"a": "input", "u": "target"}[entry.name]
    timed = entry.name == "u" and len(dataset.times) > 0
    domain, coordinates = dataset.domain, ["time"] if timed else []
    of_points = entry.number is None and domain is not None and set(entry.axes) & set(domain.axes)
    if domain is not None and role != "geometry" and of_points:
        coordinates += NAMES[: domain.dim]
    return {
        "long_name": entry.long_name,
        "role": role,
        "units": entry.units,
        **({"channels": [*entry.channels]} if entry.channels else {}),
        **({"channels": [entry.key, *entry.beside]} if entry.beside else {}),
        **({"coordinates": " ".join(coordinates)} if coordinates else {}),
        **(dataset.parameters if role in ("input", "target") else {}),
    }


def _splits(
    dataset: Published, field: FieldPlan, import_options: ImportOptions
) -> dict[str, tuple[int, int]]:
    if import_options.splits is not None:
        return split_sizes(import_options.splits, field.samples)
    literature = dataset.splits([view.sizes["sample"] for view in field.views])
    ranges = {name: ends for name, ends in literature.items() if isinstance(ends, tuple)}
    sizes = {name: size for name, size in literature.items() if isinstance(size, int)}
    return ranges or split_sizes(sizes, field.samples)


# Published datasets in which each sample has its own geometry. They are .npy and MATLAB files from
# the paper on geometry-aware Fourier neural operators.


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


def _mesh(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    size = sizes["i"], sizes["j"]
    return {"domain": Curvilinear(size, 2)} if min(size) > 1 else None


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
    facts=lambda contents, sizes: {"domain": Cloud((sizes["point"],), 2)},
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
    facts=lambda contents, sizes: _mesh(contents, sizes) if sizes["j"] % 2 else None,
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


# HDF5 files of The Well. They contain trajectories of fields. Fields of the same tensor rank are
# in one group.


def trajectories(contents: Contents, import_options: ImportOptions) -> Published | None:
    """The description of a file whose fields are imported as channels: all, or those that
    `import_options.input` names. The first frame is the input, and the others are the target.

    None if the file is not of The Well. Raises FormatError if a field is not there or has another
    shape, or if `import_options.grid` is missing and the boundary conditions do not determine it.
    """
    fields = [name for name in contents.arrays if name.startswith(("t0_fields/", "t1_fields/"))]
    if "dimensions/time" not in contents.arrays or not fields:
        return None
    chosen = import_options.inputs or tuple(fields)
    if import_options.targets not in ((), chosen) and {*chosen} <= {*contents.arrays}:
        return None
    if absent := [name for name in chosen if name not in fields]:
        raise FormatError(
            f"{contents.path.name} has no field {absent[0]}: choose as input some of "
            f"{', '.join(fields)}"
        )
    times, points = _times_and_points(contents, chosen)
    names, channels = [name.partition("/")[2] for name in chosen], list[str]()
    for name, short in zip(chosen, names, strict=True):
        vector = name.startswith("t1_fields/")
        channels += [f"{short}_{dim}" for dim in points] if vector else [short]
    kind = import_options.grid or _periodic(contents)
    if kind is None:
        raise FormatError(
            f"{contents.path.name}: its boundaries are not all periodic: give the grid, cell or "
            "nodal, or a word for each axis"
        )
    axes = ("sample", "time", *points)
    of_each = {
        name: (*axes, "channel") if name.startswith("t1_fields/") else axes for name in chosen
    }
    title, words = contents.attributes.get("@dataset_name", contents.path.name), ", ".join(names)
    first, *others = chosen
    return Published(
        name="the-well",
        title=f"The Well, {title}: {words}",
        equation=f"as described for {title} by The Well",
        source="Ohana et al., NeurIPS 2024; its splits are files of their own",
        grid=kind,
        entries=tuple(
            FileEntry(
                variable, first, of_each[first], f"{words} at the {when}", frames,
                beside=tuple(others), axes_beside=tuple(of_each[name] for name in others),
            )
            for variable, when, frames in (
                ("a", "first time", (0, 1)), ("u", "later times", (1, None)),
            )
        ),
        splits=lambda counts: {"train": sum(counts)},
        parameters={
            **_parameters(contents),
            **({"channels": channels} if len(channels) > 1 else {}),
        },
        points=points,
        times=times[1:],
    )  # fmt: skip


def _times_and_points(
    contents: Contents, fields: Sequence[str]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The times and positions of a file of The Well. Raises FormatError if a field has another
    shape: it lacks an axis or the times, or has a grid for each trajectory."""
    times = contents.array("dimensions/time").values()
    points = {
        dim: contents.array(f"dimensions/{dim}").values()
        for dim in SPACE
        if f"dimensions/{dim}" in contents.arrays
    }
    for name in fields:
        array, vector = contents.array(name), name.startswith("t1_fields/")
        shape = (times.size, *(x.size for x in points.values()), *([len(points)] * vector))
        lines = all(values.ndim == 1 for values in (times, *points.values()))
        if array.shape[1:] != shape or times.size < 2 or not lines:
            raise FormatError(
                f"{array.where} {array.shape} is not a trajectory on the {times.size} times and "
                f"{' x '.join(str(x.size) for x in points.values())} points of the file: choose "
                "fields by --input"
            )
    return times, points


def _periodic(contents: Contents) -> str | None:
    kinds = [
        str(value).upper()
        for key, value in contents.attributes.items()
        if key.startswith("boundary_conditions/") and key.endswith("@bc_type")
    ]
    return "periodic" if kinds and set(kinds) == {"PERIODIC"} else None


def _parameters(contents: Contents) -> dict[str, float]:
    """Read the parameters of the simulation from the attributes of a file."""
    sizes = {"@n_spatial_dims", "@n_trajectories"}
    return {
        key.removeprefix("@"): float(value)
        for key, value in contents.attributes.items()
        if key.startswith("@") and key not in sizes and isinstance(value, float)
    }


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
    """Search the name of the file for a pattern."""
    match = re.search(pattern, contents.path.name)
    return match.group(1) if match else None


# the Fourier neural operator's paper, MATLAB


# viscosity of the published files by number of frames and of samples; all have 64 x 64 points
_VISCOSITIES = {(50, 5000): 1e-3, (30, 10000): 1e-4, (20, 1200): 1e-5}


def _vorticity(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    """The times and the viscosity of a file. None if neither its name nor its sizes tell the
    viscosity."""
    frames = sizes["time"]
    times = np.arange(1.0, frames + 1)
    if "t" in contents.arrays:
        times = contents.array("t").values().reshape(-1)
        if len(times) != frames:
            return None
    word = _named(contents, r"V(1e-[345]|1000+)")
    if word is not None:
        viscosity = float(word) if "e" in word else 1 / float(word)
    elif (sizes["x"], sizes["y"]) == (64, 64):
        viscosity = _VISCOSITIES.get((frames, sizes["sample"]))
    else:
        viscosity = None
    if viscosity is None:
        return None
    return {"times": times, "parameters": {"viscosity": viscosity}}


def _loses_its_mean(zero: bool) -> Callable[[Sample], str]:
    """The mean over a periodic domain is conserved. That of a vorticity is 0, as of every curl."""

    def contradiction(sample: Sample) -> str:
        a, u = sample["a"], sample["u"]
        space = tuple(range(-a.ndim, 0))
        means = np.append(u.mean(axis=space), a.mean() if zero else [])
        expected, size = (0.0 if zero else a.mean()), np.sqrt(np.mean(a**2))
        if abs(means - expected).max() > (1e-3 if zero else 1e-2) * size:
            return "its mean over the periodic domain " + ("is not 0" if zero else "changes")
        return ""

    return contradiction


def _is_not_burgers_r10(sample: Sample) -> str:
    """Solve the recipe of the same name again, at every fourth point."""
    fewer = {"modes": 1023, "problem.solver.resolution": 2048, "problem.resolution": 2048}
    problem: Any = load_recipe("burgers-r10").with_overrides(fewer).problem
    solver = problem.solver.build(problem.viscosity)
    a, u = sample["a"][::4], sample["u"][::4]
    solved = solver(a, problem.times[0])
    if not np.linalg.norm(solved - u) <= 1e-2 * np.linalg.norm(u):
        return "u is not the solution of Burgers' equation from a at t = 1/2π"
    return ""


def _is_no_darcy_flow(low: float, high: float, source: float | None) -> Callable[[Sample], str]:
    """Check the phases, the value on the boundary and, where a is constant, the equation."""

    def contradiction(sample: Sample) -> str:
        a, u = sample["a"], sample["u"]
        if not (np.isclose(a, low) | np.isclose(a, high)).all():
            return f"a is not {low:g} or {high:g} everywhere"
        sides = np.concatenate([u[0], u[-1], u[:, 0], u[:, -1]])
        # with a = low at the side and high inside, u is half a cell from it 2.3 (high/low) / n
        # times the largest value
        if abs(sides).max() > 2.3 * high / low / min(u.shape) * abs(u).max():
            return "u is not near 0 at the sides"
        inner = a[1:-1, 1:-1]
        neighbours = (np.s_[2:, 1:-1], np.s_[:-2, 1:-1], np.s_[1:-1, 2:], np.s_[1:-1, :-2])
        same = np.logical_and.reduce([a[at] == inner for at in neighbours])
        forces = inner * (4 * u[1:-1, 1:-1] - sum(u[at] for at in neighbours)) * a.size
        if source is not None and same.any():
            found = float(np.median(forces[same]))
            if not 0.8 * source < found < 1.25 * source:
                return f"-a Laplace u is {found:.3g} where a is constant, not {source:g}"
        return ""

    return contradiction


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
        evidence="8192 points, u solves Burgers' equation from a",
        contradiction=_is_not_burgers_r10,
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
        splits=lambda counts: (
            {"train": counts[0]}
            if len(counts) == 1
            else {"train": 1024, "validation": 100, "test": 100}
        ),
        parameters={"source": 1.0},
        physics=_darcy_physics(3.0, 12.0),
        evidence="a is 3 or 12, -a Laplace u = 1 where a is constant, u near 0 at the sides",
        contradiction=_is_no_darcy_flow(3.0, 12.0, 1.0),
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
        evidence="its name or sizes, means of 0",
        contradiction=_loses_its_mean(zero=True),
    ),
)

# PDEBench, HDF5


_WRONG_REACTION = (
    "the labels of PDEBench's reaction-diffusion files are wrong: time steps of about 1e-7 in "
    "float32 round the reaction away (mean of u at t = 0.5 for Nu0.5_Rho1.0 and a sine: 0.5625, "
    "exact 0.6195); the recipe pdebench-reaction has correct ones"
)


def _first_tenth(counts: list[int]) -> dict[str, tuple[int, int]]:
    samples = sum(counts)
    tenth = samples // 10
    test = {"test": (0, tenth)} if tenth else {}
    return {"train": (tenth, samples), **test}


_CONSERVED: Facts = {
    "evidence": "the mean of u does not change", "contradiction": _loses_its_mean(zero=False),
}  # fmt: skip


def _on_a_line(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    """Facts about a 1-D file of PDEBench."""
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
            **_CONSERVED,
        }
    elif beta is not None:
        facts = {
            "equation": "u_t + speed u_x = 0, on a circle",
            "parameters": {"speed": float(beta)},
            **_CONSERVED,
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
        evidence="a is 0.1 or 1, u near 0 at the sides",
        contradiction=_is_no_darcy_flow(0.1, 1.0, None),
    ),
)

# PDEBench, one array for each variable of compressible flow


def _of_flow(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    axes = [axis for axis in SPACE if axis in sizes]
    lines = {axis: contents.arrays.get(f"{axis}-coordinate") for axis in (*axes, "t")}
    if any(line is None for line in lines.values()) or sizes["time"] < 2:
        return None
    points = {axis: contents.array(f"{axis}-coordinate").values() for axis in axes}
    times, count = contents.array("t-coordinate").values(), sizes["time"]
    sound = all(x.shape == (sizes[axis],) for axis, x in points.items())
    if not sound or times.shape not in ((count,), (count + 1,)):
        return None
    names = {"mach": "M", "eta": "Eta", "zeta": "Zeta"}
    numbers = {key: _named(contents, rf"_{word}([0-9.]+(?:e-?[0-9]+)?)")
               for key, word in names.items()}  # fmt: skip
    outflow = _named(contents, r"(Shock|trans)") is not None
    return {
        "title": f"PDEBench, the file {contents.path.name}",
        "points": points,
        "times": times[1:count],
        "parameters": {key: float(number.rstrip(".")) for key, number in numbers.items() if number},
        "grid": "cell" if outflow else "periodic",
    }


_PDEBENCH_FLOW = tuple(
    Published(
        name=f"pdebench-{len(axes)}d-cfd",
        title="",
        equation="compressible Navier-Stokes: density, velocity and pressure of an ideal gas with "
        "the shear viscosity eta and the bulk viscosity zeta",
        grid="periodic",
        source="Takamoto et al., NeurIPS 2022: the first tenth is the test, the rest training",
        entries=tuple(
            FileEntry(name, "density", ("sample", "time", *axes), meaning, frames,
                      beside=(*(f"V{axis}" for axis in axes), "pressure"))
            for name, meaning, frames in (
                ("a", "state at the first time", (0, 1)), ("u", "state at later times", (1, None))
            )
        ),
        splits=_first_tenth,
        facts=_of_flow,
    )
    for axes in ("x", "xy", "xyz")
)  # fmt: skip

# PDEBench, a group for each sample

_GROUPED = {  # equation by part of the file's name
    "diff-react": "u_t = Laplace u / 1000 + u - u^3 - 0.005 - v, v_t = Laplace v / 200 + u - v, "
    "no flow through the sides of (-1,1)^2",
    "diff-sorp": "u_t = D/R(u) u_xx, diffusion with sorption on (0,1)",
    "rdb": "shallow water after the break of a radial dam on (-2.5,2.5)^2",
}


def _grouped(contents: Contents, sizes: Mapping[str, int]) -> Facts | None:
    axes = [axis for axis in SPACE if axis in sizes]
    lines = {axis: contents.arrays.get(f"grid/{axis}") for axis in (*axes, "t")}
    lengths = {"t": sizes["time"], **sizes}
    if not contents.groups or sizes["time"] < 2:
        return None
    if any(line is None or line.shape != (lengths[axis],) for axis, line in lines.items()):
        return None
    word = next((word for word in _GROUPED if word in contents.path.name), "")
    return {
        "title": f"PDEBench, the file {contents.path.name}",
        "equation": _GROUPED.get(word, "not known from the file's name"),
        "points": {axis: contents.array(f"grid/{axis}").values() for axis in axes},
        "times": contents.array("grid/t").values()[1:],
        "evidence": "a group for each sample",
    }


_PDEBENCH_GROUPS = tuple(
    Published(
        name=f"pdebench-{len(axes)}d-groups",
        title="",
        equation="",
        source="Takamoto et al., NeurIPS 2022: the first tenth is the test, the rest training",
        grid="cell",
        entries=(
            FileEntry("a", "data", ("time", *axes, "channel"), "state at the first time", (0, 1)),
            FileEntry("u", "data", ("time", *axes, "channel"), "state at later times", (1, None)),
        ),
        splits=_first_tenth,
        facts=_grouped,
    )
    for axes in ("x", "xy")
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
    """Positions of the points: every 26th (n = 16) or every 13th (n = 32) of 421 nodes."""
    n = sizes["x"]
    if contents.arrays["x"].dtype != bool or n not in (16, 32):
        return None
    if _named(contents, rf"(darcy_(?:train|test)_{n})") is None:  # x and y are common names
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
        evidence="visc, the first time is the input",
        contradiction=lambda sample: (
            "" if np.array_equal(sample["u"][0], sample["a"]) else "output begins otherwise"
        ),
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
        splits=lambda counts: {"train": sum(counts) // 2, "test": -(-sum(counts) // 2)},
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

_DATASETS = (
    *_FNO,
    *_PDEBENCH,
    *_PDEBENCH_FLOW,
    *_PDEBENCH_GROUPS,
    *_NEURALOP,
    *_COST_ACCURACY,
    *MESHES,
)


def recognised_plan(files: Sequence[Contents], import_options: ImportOptions) -> Plan | None:
    """The import plan of recognised files. None for other files. Raises FormatError if the files do
    not fit together, or if they differ from the published files."""
    grid_and_splits = ImportOptions(grid=import_options.grid, splits=import_options.splits)
    recognisers = [dataset.of for dataset in _DATASETS]
    if import_options != grid_and_splits:  # the user describes the arrays
        recognisers = []
    chosen = replace(grid_and_splits, input=import_options.input, target=import_options.target)
    if import_options == chosen:
        recognisers.append(lambda contents: trajectories(contents, import_options))
    for recognise in recognisers:
        datasets = [dataset for file in files if (dataset := recognise(file)) is not None]
        if datasets and len(datasets) == len(files):
            return plan(datasets, files, import_options)
    return None
