"""What attention does in a trained operator: its latent functions beside eigenfunctions of the
equation, and the spectra of its heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from scipy.interpolate import interpn

from benchmarks.attention.latent import Latent, effective_rank, latents, spectrum
from benchmarks.attention.sturm_liouville import Line, SturmLiouville, Walls, principal_cosines
from operators.training.evaluate import positions, quadrature_of
from pdegen.domains import Box, Domain, Grid, NodalGrid
from pipelines.config.physics import physics_of
from pipelines.reports import samples
from pipelines.reports.document import Section, Table
from pipelines.reports.fields import Look, line
from pipelines.reports.figures import picture
from pipelines.reports.palette import MODEL, TRUTH
from pipelines.reports.sheets import Curves, Panel, sheet
from pipelines.reports.study_charts import curves
from pipelines.reports.wording import points
from pipelines.runs.finished import FinishedRun

_DRAWN = 4  # functions of a layer
_ROUNDING = 1e-7  # of single precision, in which operators are evaluated
_LOOK = Look("latent function", "diverging")


def sections(run: FinishedRun) -> list[Section]:
    """A section on the layers of attention at the median test sample; none where there are none."""
    if getattr(run.experiment.model, "attention", "none") in ("none", None):
        return []
    i = samples.ranked(run.errors(run.prediction)[:, 0])["median"]
    layers = _layers(run, i)
    if not layers:
        return []
    place = _place(run, i, layers[0].after.shape[1])
    found = None if place is None else _eigenfunctions(run, i, place)
    spectra = [layer.spectra[0].double().numpy() for layer in layers]
    pictures = [picture(
        _spectra(spectra), "attention-spectra",
        "Singular values of what each head of attention gives, over the largest one of the head: "
        "the mean over the heads of a layer, and their range. Values below 1e-7 are rounding.",
    )]  # fmt: skip
    if place is not None and place.dim <= 2:
        _, functions = found or (None, None)
        beside = "" if functions is None else f"; last row: {_named(run)}, the first of them"
        pictures.insert(0, picture(
            _functions(place, layers, functions), "attention-functions",
            "Leading functions of the first and the last layer with attention, with their shares "
            f"of the energy{beside}.",
        ))  # fmt: skip
    text = (
        f"Test sample {run.pairs.samples[i]}, the median. Columns of features are functions on the "
        f"{points(place.shape[0], place) if place is not None else layers[0].after.shape[1]} "
        "points that attention sees; inner products are means over the points. The effective rank "
        "is exp(−Σ p log p), p = σ²/Σσ² with the singular values σ: that of each head, of what it "
        "gives, and that of the features after the layer.",
    )
    if found is not None:
        k, n = found[1].shape[-1], layers[0].after.shape[1]
        text += (
            f"Beside them the first {k} eigenfunctions, {_named(run)}. Share: how much of the "
            f"energy of the features they hold. Agreement: the mean of cos² of the {k} principal "
            f"angles between their span and that of the {k} leading functions of the features; "
            f"{k / n:.3f} is that of spans by chance.",
        )
    return [Section("What attention does", text, (_table(layers, found),), tuple(pictures))]


def agreement(u: np.ndarray, eigenfunctions: np.ndarray) -> tuple[float, np.ndarray]:
    """How features (n, d) lie to functions (n, k).

    Returns:
        The share of their energy that the span of the functions holds, and the cosines of the
        principal angles between it and the k leading functions of the features.
    """
    basis = np.linalg.qr(eigenfunctions)[0]
    share = ((basis.T @ u) ** 2).sum() / (u**2).sum()
    return float(share), principal_cosines(_leading(u, basis.shape[1])[0], basis)


def _layers(run: FinishedRun, i: int) -> list[Latent]:
    predictor, part = run.predictor(), run.pairs.sample(i)
    steps = part.u.shape[-1] // run.pairs.channels[1]
    points, weight = positions(part, run.pairs), quadrature_of(predictor, part, run.pairs)
    return latents(predictor, lambda: predictor(part.a, *points, steps=steps, **weight))


def _place(run: FinishedRun, i: int, n: int) -> Domain | None:
    """Where attention sees values: at the points of the input, or at those of a coarser grid."""
    domain, part = run.pairs.domain, run.pairs.sample(i)
    if int(np.prod(domain.shape)) == n:
        return domain if part.x is None else domain.at(part.x[0].numpy())
    if not isinstance(domain, Box):
        return None
    m = round(n ** (1 / domain.dim))
    coarse = [_coarse(grid, m) for grid in domain.grids]
    return Box(tuple(coarse)) if m**domain.dim == n else None


def _coarse(grid: Grid, m: int) -> Grid:
    first, last = float(grid.x[0]), float(grid.x[-1])
    return NodalGrid(m, length=last - first, start=first)


def _walls(run: FinishedRun) -> Walls:
    return "dirichlet" if physics_of(run.store).boundary else "natural"


def _weight(run: FinishedRun) -> str | None:
    """The coefficient of the equation, where it is the input."""
    name, task = physics_of(run.store).loss_weight, run.experiment.data
    return name if name == task.input and run.pairs.channels[0] == 1 else None


def _named(run: FinishedRun) -> str:
    """Of what the eigenfunctions are, in words."""
    name = _weight(run)
    of = "−Δ" if name is None else f"−∇·({name}∇)"
    if run.pairs.grid == "periodic":
        return f"{of} on the period"
    return f"{of} with {'zero values' if _walls(run) == 'dirichlet' else 'no flux'} at the walls"


def _eigenfunctions(
    run: FinishedRun, i: int, place: Domain
) -> tuple[np.ndarray, np.ndarray] | None:
    """The smallest eigenvalues of the equation, or of -Δ, and functions (n, k), on a box."""
    whole = run.pairs.domain
    if not (isinstance(place, Box) and isinstance(whole, Box)) or place.dim > 2:
        return None
    lines = tuple(
        Line(
            at.x, grid.start, grid.start + grid.length,
            "periodic" if grid.kind == "periodic" else _walls(run),
        )
        for at, grid in zip(place.grids, whole.grids, strict=True)
    )  # fmt: skip
    a = None
    if _weight(run) is not None:
        values = run.pairs.a[i, ..., 0].double().numpy()
        a = interpn([grid.x for grid in whole.grids], values, place.points)
    # of a square those up to here are all of their eigenvalues
    k = min(9 if run.pairs.grid == "periodic" else 8, place.points.size // place.dim // 2)
    values, u = SturmLiouville(lines, a).eigenfunctions(k)
    return values, u.reshape(-1, k)


def _leading(u: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k leading functions of features (n, d), and the share of the energy that each holds."""
    functions, sizes, _ = np.linalg.svd(u, full_matrices=False)
    return functions[:, :k], (sizes**2 / (sizes**2).sum())[:k]


def _table(layers: Sequence[Latent], found: tuple[np.ndarray, np.ndarray] | None) -> Table:
    header = ("layer", "‖attention‖ / ‖features‖", "rank of a head", "rank of the features")
    if found is not None:
        header += ("share", "agreement", "smallest angle", "largest angle")
    rows = []
    for number, layer in enumerate(layers, 1):
        ranks = effective_rank(layer.spectra[0]).tolist()
        ends = dict.fromkeys(f"{end:.1f}" for end in (min(ranks), max(ranks)))
        after, of = layer.after[0].double(), layer.heads.shape[-1]
        row = [
            str(number),
            f"{float(layer.added.norm() / layer.before.norm()):.3g}",
            f"{' to '.join(ends)} of {of}",
            f"{float(effective_rank(spectrum(after))):.1f} of {after.shape[1]}",
        ]
        if found is not None:
            share, cosines = agreement(after.numpy(), found[1])
            angles = np.degrees(np.arccos(cosines[[0, -1]]))
            row += [
                f"{share:.3f}",
                f"{(cosines**2).mean():.3f}",
                *(f"{one:.0f}°" for one in angles),
            ]
        rows.append(tuple(row))
    return Table(rows, header)


def _spectra(spectra: Sequence[np.ndarray]) -> Figure:
    """Falling singular values by layer, each over the first of its head."""
    series, bands = {}, {}
    for number, s in enumerate(spectra, 1):
        ratios = np.maximum(s / s[:, :1], _ROUNDING)
        places = range(1, ratios.shape[1] + 1)
        series[f"layer {number}"] = places, ratios.mean(axis=0).tolist()
        if len(s) > 1:
            bands[f"layer {number}"] = ratios.min(axis=0).tolist(), ratios.max(axis=0).tolist()
    return curves(series, "number", "singular value / largest", bands=bands, markers=False)


def _functions(place: Domain, layers: Sequence[Latent], beside: np.ndarray | None) -> Figure:
    """Rows of functions: of the first layer, of the last one, and eigenfunctions."""
    shown = {number: layers[number - 1] for number in dict.fromkeys((1, len(layers)))}
    rows, names = [], [f"layer {number}" for number in shown]
    for layer in shown.values():
        functions, shares = _leading(layer.after[0].double().numpy(), _DRAWN)
        titles = [f"{100 * share:.3g} %" for share in shares]
        rows.append(_row(place, functions, titles, MODEL))
    if beside is not None:
        first = beside[:, :_DRAWN]
        rows.append(_row(place, first, [""] * first.shape[1], TRUTH))
        names.append("eigenfunctions")
    return sheet(rows, names)


def _row(
    place: Domain, functions: np.ndarray, titles: Sequence[str], ink: str
) -> list[Panel | Curves | None]:
    """Functions (n, k) of mean square 1; the largest value is positive."""
    row = list[Panel | Curves | None]()
    for f, title in zip(functions.T, titles, strict=True):
        values = (f / np.sqrt(np.mean(f**2)) * np.sign(f[np.abs(f).argmax()])).reshape(place.shape)
        if place.dim == 1:
            values = values.round(6)  # a constant is one
            row.append(Curves([(*line(place, values), ink, "-", "")], title))
        else:
            row.append(Panel(place, values, _LOOK, _LOOK.scale(values), title, None))
    return row
