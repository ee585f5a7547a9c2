"""Pictures of the samples of a store, on any domain."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from operators.data import Channel, Samples
from operators.data.opening import names_of
from pdegen.domains import NAMES, Box
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, StoreError, open_sealed
from pipelines.config.experiment import Experiment, domain_of, functions_in, physics_of
from pipelines.reports.bodies import curves_along
from pipelines.reports.fields import Ends, Look, line
from pipelines.reports.figures import TIMES, WIDE, colour_bar, legend, save, styled, time_bar
from pipelines.reports.palette import INPUT, MODEL, QUIET
from pipelines.reports.sheets import Above, Functions, Panel, in_columns, sheet, wrapped
from pipelines.runs.finished import FinishedRun

FORMATS = (".png", ".svg", ".pdf")
_LINE = 95  # characters per line of the title
_ROWS = 4  # largest number of channels drawn of a variable
_INPUTS = ((INPUT, "--"), ("#CC79A7", "-."), ("#E69F00", ":"), (QUIET, "--"))
_Style = tuple[str, str]  # colour and line style

AFTERTHOUGHT = re.compile(r",(?![^(]*\)).*")  # from a comma outside brackets on


def plot_store(url: str, sample: int | None, out: Path) -> Path:
    """Draw samples of a complete store and write the picture to a file.

    Functions of one variable are drawn as curves. For other functions, a few channels and times are
    drawn as images. If the store has several noise levels, one sample is drawn at every level.

    Args:
        sample: Number of the sample; None for the first ones.

    Raises:
        StoreError: If the store cannot be read, or has no such sample.
        SchemaError: If `out` has another suffix, or is not a file.
    """
    if out.suffix.lower() not in FORMATS:
        raise SchemaError(f"a picture ends in {', '.join(FORMATS)}, got {str(out)!r}")
    if "\0" in str(out) or (out.exists() and not out.is_file()):
        raise SchemaError(f"{str(out)!r} is not a file: name the picture file to write")
    store = open_sealed(url)
    if sample is not None and not 0 <= sample < store.samples:
        raise StoreError(f"{url} has samples 0 to {store.samples - 1}, got {sample}")
    if sample in store.skipped:
        raise StoreError(f"{url} has no values of sample {sample}: it was skipped")
    names = [name for role in ("input", "target") for name in functions_in(store, role)]
    names = [name for name in names if store.arrays[name].metadata.role != "geometry"]
    curves = domain_of(store).dim == 1
    noisy = next((name for name in names if "level" in store.arrays[name].dims), None)
    most = 1 if noisy else 6 if curves else 4
    with_values = (i for i in range(store.samples) if i not in store.skipped)
    numbers = list(islice(with_values, most)) if sample is None else [sample]
    prefix = f"sample {numbers[0]} of " if noisy or sample is not None else ""
    title = f"{prefix}{_title(store, names[-1])}"
    variables = _with_bodies([functions(store, name, numbers) for name in names])
    columns = [f"sample {i}" for i in numbers]
    if noisy:
        columns, variables = _at_levels(store, names, noisy, numbers[0])
    if curves:
        labels = [_named(store, name) for name in names]
        styles = _styles(names, noisy or names[-1])
        figure = _curves(variables, columns, labels, styles, title)
    else:
        figure = _panels(variables, columns, title, names.index(noisy) if noisy else None)
    save(figure, out)
    return out


def _styles(names: Sequence[str], main: str) -> list[_Style]:
    """Colour and line style of each variable. The main variable has a solid line in the colour
    MODEL."""
    others = cycle(_INPUTS)
    return [(MODEL, "-") if name == main else next(others) for name in names]


def look_of(store: Store, name: str) -> Look:
    """How a variable of a store is drawn. If the equation does not declare this, it depends on the
    role of the variable."""
    physics, role = physics_of(store), store.arrays[name].metadata.role
    how, phases = physics.drawing.get(name), physics.phases.get(name)
    symbol = name if how is None else how.symbol or name
    if how is not None and phases is None:
        return Look(
            symbol, how.colours, how.log, None, how.moves, how.contours, how.along, how.falls
        )
    return Look(symbol, "phases" if phases or role == "input" else "sequential", True, phases)


def functions(store: Store, name: str, numbers: Sequence[int], level: int = 0) -> Functions:
    """Values of a variable for some samples of a store, at one of its noise levels."""
    domain, array = domain_of(store), store.arrays[name]

    def values(variable: str) -> np.ndarray:
        return np.concatenate([store.values(variable, range(i, i + 1)) for i in numbers])

    data = values(name).astype(float)
    data = data[:, level] if "level" in array.dims else data
    sizes = dict(zip(array.dims, array.shape, strict=True))
    components = array.metadata.channels or tuple(
        f"{name}_{k}" for k in range(sizes.get("channel", 0))
    )
    times = np.atleast_1d(store.values("time")).tolist() if "time" in sizes else [None]
    channels = tuple(Channel(name, part, time) for time in times for part in components or ("",))
    data = np.moveaxis(data.reshape(len(numbers), len(channels), *domain.shape), 1, -1)
    roles = {variable.metadata.role: n for n, variable in store.description.variables.items()}
    axes = [axis for axis in NAMES if axis in store.variables]
    return Functions(
        replace(look_of(store, name), name=AFTERTHOUGHT.sub("", array.metadata.long_name) or name),
        data, channels, domain,
        np.stack([values(axis) for axis in axes], axis=-1) if domain.moves else None,
        values(roles["count"]) if "count" in roles else None, near_of(store),
    )  # fmt: skip


def near_of(store: Store) -> Ends | None:
    """The part of the plane that is drawn for a store; None for all of it."""
    near = physics_of(store).near
    if domain_of(store).dim != 2 or not {"x", "y"} <= near.keys():
        return None
    ends = np.array([near["x"], near["y"]])
    return ends[:, 0], ends[:, 1]


@dataclass(frozen=True)
class Tested:
    """Test samples of an experiment and their store."""

    experiment: Experiment
    store: Store
    pairs: Samples


def functions_of(run: FinishedRun | Tested) -> tuple[Functions, Functions]:
    """Inputs and targets of test samples. Inputs contain the noise with which the model is
    tested."""
    pairs, arrays = run.pairs, run.pairs.all.per_sample
    input, target = (names_of(names)[0] for names in run.experiment.variables)
    mask = arrays.get("mask")
    counts = None if mask is None else mask.sum(dim=1).numpy()

    def of(name: str, values: Tensor, channels: tuple[Channel, ...], points: str) -> Functions:
        positions, domain = arrays.get(points), pairs.domain
        shared = pairs.y if points == "y" else None
        if shared is not None:  # averages over cells of the unit box
            domain = Box.cell(*shared.shape[:-1])
        return Functions(
            look_of(run.store, channels[0].variable if channels else name),
            values[..., : len(channels) or None].numpy(),
            channels or tuple(Channel(name, f"{name}_{k}") for k in range(values.shape[-1])),
            domain, None if positions is None else positions.numpy(), counts, near_of(run.store),
        )  # fmt: skip

    targets = "y" if "y" in arrays or pairs.y is not None else "x"
    inputs = of(input, pairs.a, pairs.input_channels, "x")
    truth = of(target, pairs.u, pairs.target_channels, targets)
    return inputs, replace(truth, above=Above.of(inputs) if truth.look.moves else None)


def _with_bodies(variables: list[Functions]) -> list[Functions]:
    """Variables to draw. If a variable has displacements, the rigid body is drawn in its panels and
    the variable that describes the body is omitted."""
    if not any(variable.look.moves for variable in variables):
        return variables
    above = next((body for variable in variables if (body := Above.of(variable))), None)
    return [
        replace(variable, above=above if variable.look.moves else None)
        for variable in variables
        if above is None or variable.look.falls is None
    ]


def _title(store: Store, name: str) -> str:
    """Text with two lines: the title of the store, and the constants of a variable."""
    constants = [
        f"{key} = {value:.4g}"
        for key, value in store.raw_attributes_of(name).items()
        if isinstance(value, int | float)
    ]
    title = textwrap.fill(str(store.raw_attributes["title"]), _LINE)
    return f"{title}\n{', '.join(constants)}"


def _named(store: Store, name: str) -> str:
    """Role, name and meaning of a variable. The time is added if all values belong to the same
    time."""
    metadata, time = store.arrays[name].metadata, ""
    if "time" in metadata.coordinates and "time" in store.arrays:
        times = np.atleast_1d(store.values("time"))
        time = f" at t = {times[0]:.4g}" if len(times) == 1 else ""
    return f"{metadata.role} {name}: {metadata.long_name}{time}"


def _at_levels(
    store: Store, names: list[str], noisy: str, number: int
) -> tuple[list[str], list[Functions]]:
    """A title for each noise level, and the variables of one sample, in which the levels take the
    place of samples."""
    kind = store.metadata.noise.kind if store.metadata.noise else ""
    levels = store.values("level").tolist()

    def stacked(name: str) -> Functions:
        by_level = [functions(store, name, [number], k) for k in range(len(levels))]
        first = by_level[0]
        return replace(
            first,
            values=np.concatenate([level.values for level in by_level]),
            positions=_repeated(first.positions, len(levels)),
            counts=_repeated(first.counts, len(levels)),
        )

    return [f"{kind} noise {v:g}".strip() for v in levels], [stacked(name) for name in names]


def _repeated(values: np.ndarray | None, times: int) -> np.ndarray | None:
    return None if values is None else np.repeat(values, times, axis=0)


def _panels(
    variables: list[Functions], columns: list[str], title: str, noisy: int | None
) -> Figure:
    """Panels of all variables. Inputs are above targets, and each sample has a column.

    If `noisy` is the index of a variable in `variables`, only one sample is drawn. That variable
    has a panel for each noise level.
    """
    if noisy is not None:
        others = [variable for variable in variables if variable is not variables[noisy]]
        first = [variable.panel(0, 0, title=variable.look.name) for variable in others]
        main = variables[noisy]
        levels = [main.panel(k, 0, main.scale(0), word) for k, word in enumerate(columns)]
        return sheet(wrapped([*first, *levels]), title=title)
    curves = [curves_along(v, range(len(columns))) for v in variables if v.look.along]
    if len(columns) > 1:
        rows, names = in_columns(variables, _ROWS, columns)
        return sheet([*rows, *curves], names, title)
    panels = [[_labelled(v, channel) for channel in v.chosen(_ROWS)] for v in variables]
    together = [panel for row in [*panels, *curves] for panel in row]
    if len(together) <= _ROWS or len(panels) > 2:
        panels = wrapped(together)
    return sheet(panels, title=title)


def _labelled(variable: Functions, channel: int) -> Panel:
    name = variable.names[channel] if len(variable.names) > 1 else ""
    panel = variable.panel(0, channel, variable.scale(channel), name)
    return replace(panel, label=variable.look.name)


@styled
def _curves(
    variables: list[Functions],
    columns: list[str],
    labels: list[str],
    styles: list[_Style],
    title: str,
) -> Figure:
    """Curves of all variables, with a panel for each sample.

    If a variable has several components, each component has its own row. The colour of the curves
    of a trajectory shows the time.
    """
    components = [(k, name) for k, variable in enumerate(variables) for name in variable.components]
    alone = len(components) > len(variables)
    across = list(range(min(3 if alone else 6, len(columns))))
    layout = (
        [([component], across) for component in components]
        if alone
        else [(components, across[k : k + 3]) for k in range(0, len(across), 3)]
    )
    times = sorted({time for variable in variables for time in variable.times})
    colour = Normalize(times[0], times[-1]) if len(times) > 1 else None
    image = colour is not None and len(columns) == 1
    height = (3.0 if len(columns) == 1 else 2.4) + (1.3 if alone else 1.6) * (len(layout) - 1)
    figure = Figure(figsize=(WIDE, height))
    axes = figure.subplots(
        len(layout), 2 if image else len(layout[0][1]), squeeze=False,
        sharex=variables[0].positions is None,
        sharey=False if image else "row" if alone else True,
    )  # fmt: skip
    for row, (drawn, samples) in zip(axes, layout, strict=True):
        for cell, i in zip(row, samples, strict=False):
            for k, name in drawn:
                _draw(cell, variables[k], name, i, styles[k], colour)
            if len(columns) > 1 and (not alone or drawn == layout[0][0]):
                cell.set_title(columns[i])
        for cell in row[len(samples) :]:
            if image:
                _against_time(figure, cell, *[(variables[k], name) for k, name in drawn][-1])
            else:
                cell.set_axis_off()
        row[0].set_ylabel(", ".join(dict.fromkeys(name for _, name in drawn)))
    for cell in axes[-1]:
        cell.set_xlabel("x")
    for variable, label, (ink, dashes) in zip(variables, labels, styles, strict=True):
        ink = TIMES(0.6) if len(variable.times) > 1 else ink
        axes[0, 0].plot([], [], color=ink, ls=dashes, label=label)
    if colour:
        time_bar(figure, axes[:, :1] if image else axes, colour)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    legend(figure, axes[0, 0], below=True)
    return figure


def _draw(
    axes: Axes, variable: Functions, name: str, i: int, style: _Style, colour: Normalize | None
) -> None:
    ink, dashes = style
    for time, channel in variable.components[name].items():
        x, values = line(variable.place(i), variable.of(i, channel))
        shade = ink if time is None or colour is None else TIMES(colour(time))
        axes.plot(x, values, color=shade, ls=dashes, lw=1.1)
        axes.set_xlim(x[0], x[-1])


def _against_time(figure: Figure, axes: Axes, variable: Functions, name: str) -> None:
    """Draw a component of the first sample as an image over x and t."""
    channels = {t: c for t, c in variable.components[name].items() if t is not None}
    if len(channels) < 2:
        axes.set_axis_off()
        return
    x, values = line(variable.place(0), variable.of(0, list(channels.values())))
    size = np.abs(values).max()
    mesh = axes.pcolormesh(
        x, list(channels), values.T, cmap="RdBu_r", vmin=-size, vmax=size, shading="nearest",
        rasterized=True,
    )  # fmt: skip
    axes.set(ylabel="time t")
    axes.grid(False)
    colour_bar(figure, mesh, ax=axes, label=name)
