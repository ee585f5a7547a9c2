"""Pictures of the samples of a store, on any domain."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from operators.data import Channel, Samples
from pdegen.domains import NAMES, Box
from pdegen.schema import SchemaError
from pdegen.store.reading import Store, StoreError, open_sealed
from pipelines.config.experiment import Experiment
from pipelines.config.physics import domain_of, functions_in, physics_of
from pipelines.reports.bodies import curves_along
from pipelines.reports.fields import Ends, Look, line
from pipelines.reports.figures import TIMES, WIDE, legend, save, styled, time_bar
from pipelines.reports.palette import MODEL, QUIET
from pipelines.reports.sheets import Above, Functions, Panel, in_columns, sheet, wrapped
from pipelines.runs.finished import FinishedRun

FORMATS = (".png", ".svg", ".pdf")
_LINE = 100  # letters of a line of the title
_ROWS = 4  # channels of a variable that are drawn

AFTERTHOUGHT = re.compile(r",(?![^(]*\)).*")  # of a long name: from a comma outside brackets on


def plot_store(url: str, sample: int | None, out: Path) -> Path:
    """Draw samples of a sealed store into a file.

    One sample, or without a number the first ones: curves on a line, elsewhere a panel for each of
    a few times and channels. Of a store with several noise levels, one sample at every level.

    Raises:
        StoreError: If the store cannot be read, or has no such sample.
        SchemaError: If `out` names another format, or what is no file.
    """
    if out.suffix.lower() not in FORMATS:
        raise SchemaError(f"a picture is {', '.join(FORMATS)}, got {str(out)!r}")
    if "\0" in str(out) or (out.exists() and not out.is_file()):
        raise SchemaError(f"{str(out)!r} is no file: a picture is written to one")
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
    there = (i for i in range(store.samples) if i not in store.skipped)
    numbers = list(islice(there, most)) if sample is None else [sample]
    prefix = f"sample {numbers[0]} of " if noisy or sample is not None else ""
    title = f"{prefix}{_title(store, names[-1])}"
    found = _with_bodies([functions(store, name, numbers) for name in names])
    columns = [f"sample {i}" for i in numbers]
    if noisy:
        columns, found = _at_levels(store, names, noisy, numbers[0])
    if curves:
        inks = {name: MODEL if name == (noisy or names[-1]) else QUIET for name in names}
        figure = _curves(found, columns, [_named(store, name) for name in names], inks, title)
    else:
        figure = _panels(found, columns, title, names.index(noisy) if noisy else None)
    save(figure, out)
    return out


def look_of(store: Store, name: str) -> Look:
    """How a variable of a store is drawn: as its equation says, else by its role."""
    physics, role = physics_of(store), store.arrays[name].metadata.role
    how, phases = physics.drawing.get(name), physics.phases.get(name)
    symbol = name if how is None else how.symbol or name
    if how is not None and phases is None:
        return Look(
            symbol, how.colours, how.log, None, how.moves, how.contours, how.along, how.falls
        )
    return Look(symbol, "phases" if phases or role == "input" else "sequential", True, phases)


def functions(store: Store, name: str, numbers: Sequence[int], level: int = 0) -> Functions:
    """A variable of some samples of a store, at one of its noise levels."""
    domain, array = domain_of(store), store.arrays[name]

    def values(variable: str) -> np.ndarray:
        return np.concatenate([store.values(variable, range(i, i + 1)) for i in numbers])

    found = values(name).astype(float)
    found = found[:, level] if "level" in array.dims else found
    sizes = dict(zip(array.dims, array.shape, strict=True))
    own = array.metadata.channels or tuple(f"{name}_{k}" for k in range(sizes.get("channel", 0)))
    times = np.atleast_1d(store.values("time")).tolist() if "time" in sizes else [None]
    channels = tuple(Channel(name, part, time) for time in times for part in own or ("",))
    found = np.moveaxis(found.reshape(len(numbers), len(channels), *domain.shape), 1, -1)
    roles = {variable.metadata.role: n for n, variable in store.description.variables.items()}
    places = [axis for axis in NAMES if axis in store.variables]
    return Functions(
        replace(look_of(store, name), name=AFTERTHOUGHT.sub("", array.metadata.long_name) or name),
        found, channels, domain,
        np.stack([values(axis) for axis in places], axis=-1) if domain.moves else None,
        values(roles["count"]) if "count" in roles else None, near_of(store),
    )  # fmt: skip


def near_of(store: Store) -> Ends | None:
    """The part of the plane that is drawn of a store; None for all of it."""
    near = physics_of(store).near
    if domain_of(store).dim != 2 or not {"x", "y"} <= near.keys():
        return None
    ends = np.array([near["x"], near["y"]])
    return ends[:, 0], ends[:, 1]


@dataclass(frozen=True)
class Tested:
    """Test samples of an experiment, and their store."""

    experiment: Experiment
    store: Store
    pairs: Samples


def functions_of(run: FinishedRun | Tested) -> tuple[Functions, Functions]:
    """Inputs and targets of the test samples of a run, as the model sees them."""
    pairs, data, own = run.pairs, run.experiment.data, run.pairs.all.own
    mask = own.get("mask")
    counts = None if mask is None else mask.sum(dim=1).numpy()

    def of(name: str, values: Tensor, channels: tuple[Channel, ...], places: str) -> Functions:
        at, domain = own.get(places), pairs.domain
        shared = pairs.y if places == "y" else None
        if shared is not None:  # averages over cells of the unit box
            domain = Box.cell(*shared.shape[:-1])
        return Functions(
            look_of(run.store, channels[0].variable if channels else name),
            values[..., : len(channels) or None].numpy(),
            channels or tuple(Channel(name, f"{name}_{k}") for k in range(values.shape[-1])),
            domain, None if at is None else at.numpy(), counts, near_of(run.store),
        )  # fmt: skip

    targets = "y" if "y" in own or pairs.y is not None else "x"
    inputs = of(data.input, pairs.a, pairs.input_channels, "x")
    truth = of(data.target, pairs.u, pairs.target_channels, targets)
    return inputs, replace(truth, above=Above.of(inputs) if truth.look.moves else None)


def _with_bodies(found: list[Functions]) -> list[Functions]:
    """Functions whose points move, with the bodies over them in place of their lower sides."""
    if not any(one.look.moves for one in found):
        return found
    above = next((body for one in found if (body := Above.of(one))), None)
    return [
        replace(one, above=above if one.look.moves else None)
        for one in found
        if above is None or one.look.falls is None
    ]


def _title(store: Store, name: str) -> str:
    """Title of the store, and the constants of a variable."""
    constants = [
        f"{key} = {value:.4g}"
        for key, value in store.raw_attributes_of(name).items()
        if isinstance(value, int | float)
    ]
    title = textwrap.fill(str(store.raw_attributes["title"]), _LINE)
    return f"{title}\n{', '.join(constants)}"


def _named(store: Store, name: str) -> str:
    """A variable in words, with its time where there is one for all values."""
    said, time = store.arrays[name].metadata, ""
    if "time" in said.coordinates and "time" in store.arrays:
        times = np.atleast_1d(store.values("time"))
        time = f" at t = {times[0]:.4g}" if len(times) == 1 else ""
    return f"{said.role} {name}: {said.long_name}{time}"


def _at_levels(
    store: Store, names: list[str], noisy: str, number: int
) -> tuple[list[str], list[Functions]]:
    """One sample at every noise level in place of several samples, and the levels in words."""
    kind = store.metadata.noise.kind if store.metadata.noise else ""
    levels = store.values("level").tolist()

    def stacked(name: str) -> Functions:
        at = [functions(store, name, [number], k) for k in range(len(levels))]
        return replace(
            at[0],
            values=np.concatenate([one.values for one in at]),
            positions=_repeated(at[0].positions, len(levels)),
            counts=_repeated(at[0].counts, len(levels)),
        )

    return [f"{kind} noise {v:g}".strip() for v in levels], [stacked(name) for name in names]


def _repeated(values: np.ndarray | None, times: int) -> np.ndarray | None:
    return None if values is None else np.repeat(values, times, axis=0)


def _panels(found: list[Functions], columns: list[str], title: str, noisy: int | None) -> Figure:
    """Inputs above targets, a column for each sample; one sample, or the noise levels of one,
    beside each other."""
    if noisy is not None:
        first = [one.panel(0, 0, title=one.look.name) for one in found if one is not found[noisy]]
        one = found[noisy]
        levels = [one.panel(k, 0, one.scale(0), word) for k, word in enumerate(columns)]
        return sheet(wrapped([*first, *levels]), title=title)
    curves = [curves_along(one, range(len(columns))) for one in found if one.look.along]
    if len(columns) > 1:
        rows, names = in_columns(found, _ROWS, columns)
        return sheet([*rows, *curves], names, title)
    panels = [[_labelled(one, channel) for channel in one.chosen(_ROWS)] for one in found]
    together = [panel for row in [*panels, *curves] for panel in row]
    if len(together) <= _ROWS or len(panels) > 2:
        panels = wrapped(together)
    return sheet(panels, title=title)


def _labelled(one: Functions, channel: int) -> Panel:
    several = len(one.names) > 1
    panel = one.panel(0, channel, one.scale(channel), one.names[channel] if several else "")
    return replace(panel, label=one.look.name)


@styled
def _curves(
    found: list[Functions], columns: list[str], labels: list[str], inks: dict[str, str], title: str
) -> Figure:
    """Curves of all variables in one panel for each sample; where some have several components, a
    row for each of these. The curves of a trajectory are coloured by time."""
    components = [(k, name) for k, one in enumerate(found) for name in one.components]
    alone = len(components) > len(found)
    across = list(range(min(3 if alone else 6, len(columns))))
    layout = (
        [([component], across) for component in components]
        if alone
        else [(components, across[k : k + 3]) for k in range(0, len(across), 3)]
    )
    times = sorted({time for one in found for time in one.times})
    colour = Normalize(times[0], times[-1]) if len(times) > 1 else None
    image = colour is not None and len(columns) == 1
    figure = Figure(figsize=(WIDE, (4.0 if len(columns) == 1 else 3.2) + 2.2 * (len(layout) - 1)))
    axes = figure.subplots(
        len(layout), 2 if image else len(layout[0][1]), squeeze=False,
        sharex=found[0].positions is None, sharey=False if image else "row" if alone else True,
    )  # fmt: skip
    for row, (drawn, samples) in zip(axes, layout, strict=True):
        for cell, i in zip(row, samples, strict=False):
            for k, name in drawn:
                _draw(cell, found[k], name, i, list(inks.values())[k], colour)
            if len(columns) > 1 and (not alone or drawn == layout[0][0]):
                cell.set_title(columns[i])
        for cell in row[len(samples) :]:
            if image:
                _against_time(figure, cell, *[(found[k], name) for k, name in drawn][-1])
            else:
                cell.set_axis_off()
        row[0].set_ylabel(", ".join(name for _, name in drawn))
    for cell in axes[-1]:
        cell.set_xlabel("x")
    for one, label, ink in zip(found, labels, inks.values(), strict=True):
        ink = TIMES(0.6) if len(one.times) > 1 else ink
        dashes = "--" if ink == QUIET else "-"
        axes[0, 0].plot([], [], color=ink, ls=dashes, label=label)
    if colour:
        time_bar(figure, axes[:, :1] if image else axes, colour)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    legend(figure, axes[0, 0], below=True)
    return figure


def _draw(
    axes: Axes, one: Functions, name: str, i: int, ink: str, colour: Normalize | None
) -> None:
    for time, channel in one.components[name].items():
        x, values = line(one.place(i), one.of(i, channel))
        shade = ink if time is None or colour is None else TIMES(colour(time))
        axes.plot(x, values, color=shade, ls="--" if shade == QUIET else "-", lw=1.2)
        axes.set_xlim(x[0], x[-1])


def _against_time(figure: Figure, axes: Axes, one: Functions, name: str) -> None:
    """A component of the first sample on the plane of x and t."""
    channels = {t: c for t, c in one.components[name].items() if t is not None}
    if len(channels) < 2:
        axes.set_axis_off()
        return
    x, values = line(one.place(0), one.of(0, list(channels.values())))
    size = np.abs(values).max()
    mesh = axes.pcolormesh(
        x, list(channels), values.T, cmap="RdBu_r", vmin=-size, vmax=size, shading="nearest",
        rasterized=True,
    )  # fmt: skip
    axes.set(ylabel="time t")
    axes.grid(False)
    figure.colorbar(mesh, ax=axes, label=name)
