"""Report sections on attention in a trained operator: latent functions beside eigenfunctions of
the equation, and singular values of the heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from scipy.interpolate import interpn

from benchmarks.attention.latent import Latent, effective_rank, latents, spectrum
from benchmarks.attention.sturm_liouville import Line, SturmLiouville, Walls, principal_cosines
from operators.training.evaluate import positions, quadrature_of
from pdegen.domains import Box, Domain, Grid, NodalGrid
from pipelines.config.experiment import physics_of
from pipelines.reports import pictures
from pipelines.reports.document import Section, Table, points
from pipelines.reports.fields import Curves, Look, Panel, line, sheet
from pipelines.reports.figures import curves, picture
from pipelines.reports.palette import MODEL, TRUTH
from pipelines.runs.finished import FinishedRun

_DRAWN = 4  # number of functions drawn per layer
_ROUNDING = 1e-7  # rounding of single precision, in which operators are evaluated
_LOOK = Look("latent function", "diverging")


def sections(run: FinishedRun) -> list[Section]:
    """Section on the attention layers at the median test sample; empty without such layers."""
    if getattr(run.experiment.model, "attention", "none") in ("none", None):
        return []
    i = pictures.ranked(run.errors(run.prediction)[:, 0])["median"]
    layers = _layers(run, i)
    if not layers:
        return []
    domain = _attention_domain(run, i, layers[0].after.shape[1])
    eigen = None if domain is None else _eigenfunctions(run, i, domain)
    spectra = [layer.spectra[0].double().numpy() for layer in layers]
    drawn = [picture(
        _spectra(spectra), "attention-spectra",
        "Singular values of the output of each attention head, over the largest one of the head: "
        "the mean over the heads of a layer, and their range. Values below 1e-7 are rounding.",
    )]  # fmt: skip
    if domain is not None and domain.dim <= 2:
        _, functions = eigen or (None, None)
        beside = (
            "" if functions is None else f"; last row: {_operator_formula(run)}, the first of them"
        )
        drawn.insert(0, picture(
            _functions(domain, layers, functions), "attention-functions",
            "Leading functions of the first and the last layer with attention, with their shares "
            f"of the energy{beside}.",
        ))  # fmt: skip
    text = (
        f"Test sample {run.pairs.ids[i]}, the median. Columns of features are functions on the "
        f"{points(domain.shape[0], domain) if domain is not None else layers[0].after.shape[1]} "
        "points that attention sees; inner products are means over the points. The effective rank "
        "is exp(−Σ p log p), p = σ²/Σσ² of singular values σ: that of each head's output, and "
        "that of the features after the layer.",
    )
    if eigen is not None:
        k, n = eigen[1].shape[-1], layers[0].after.shape[1]
        text += (
            f"They are compared with the first {k} eigenfunctions of {_operator_formula(run)}. "
            "Share: the part of the features' energy in the span of these functions. Agreement: "
            f"the mean of cos² of the {k} principal angles between this span and the span of the "
            f"{k} leading functions of the features; random spans have {k / n:.3f}.",
        )
    return [Section("What attention does", text, (_table(layers, eigen),), tuple(drawn))]


def agreement(u: np.ndarray, eigenfunctions: np.ndarray) -> tuple[float, np.ndarray]:
    """Agreement of features (n, d) with functions (n, k).

    Returns:
        The share of the features' energy in the span of the functions, and the cosines of the
        principal angles between this span and the k leading functions of the features.
    """
    basis = np.linalg.qr(eigenfunctions)[0]
    share = ((basis.T @ u) ** 2).sum() / (u**2).sum()
    return float(share), principal_cosines(_leading(u, basis.shape[1])[0], basis)


def _layers(run: FinishedRun, i: int) -> list[Latent]:
    predictor, part = run.predictor(), run.pairs.sample(i)
    steps = part.u.shape[-1] // run.pairs.channels[1]
    points, weight = positions(part, run.pairs), quadrature_of(predictor, part, run.pairs)
    return latents(predictor, lambda: predictor(part.a, *points, steps=steps, **weight))


def _attention_domain(run: FinishedRun, i: int, n: int) -> Domain | None:
    """Domain of the n points of attention: the points of the input, or a coarser grid."""
    domain, sample = run.pairs.domain, run.pairs.sample(i)
    if int(np.prod(domain.shape)) == n:
        return domain if sample.x is None else domain.at(sample.x[0].numpy())
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


def _operator_formula(run: FinishedRun) -> str:
    """Formula and boundary condition of the operator whose eigenfunctions are drawn."""
    name = _weight(run)
    of = "−Δ" if name is None else f"−∇·({name}∇)"
    if run.pairs.grid == "periodic":
        return f"{of} on the period"
    return f"{of} with {'zero values' if _walls(run) == 'dirichlet' else 'no flux'} at the walls"


def _eigenfunctions(
    run: FinishedRun, i: int, domain: Domain
) -> tuple[np.ndarray, np.ndarray] | None:
    """Smallest eigenvalues and eigenfunctions (n, k) of the equation, or of -Δ, on a box."""
    whole = run.pairs.domain
    if not (isinstance(domain, Box) and isinstance(whole, Box)) or domain.dim > 2:
        return None
    lines = tuple(
        Line(
            at.x, grid.start, grid.start + grid.length,
            "periodic" if grid.kind == "periodic" else _walls(run),
        )
        for at, grid in zip(domain.grids, whole.grids, strict=True)
    )  # fmt: skip
    a = None
    if _weight(run) is not None:
        values = run.pairs.a[i, ..., 0].double().numpy()
        a = interpn([grid.x for grid in whole.grids], values, domain.points)
    # on a square, no multiple eigenvalue is cut at this number
    k = min(9 if run.pairs.grid == "periodic" else 8, domain.points.size // domain.dim // 2)
    values, u = SturmLiouville(lines, a).eigenfunctions(k)
    return values, u.reshape(-1, k)


def _leading(u: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k leading functions of features (n, d), and the share of energy of each."""
    functions, sizes, _ = np.linalg.svd(u, full_matrices=False)
    return functions[:, :k], (sizes**2 / (sizes**2).sum())[:k]


def _table(layers: Sequence[Latent], eigen: tuple[np.ndarray, np.ndarray] | None) -> Table:
    header = ("layer", "‖attention‖ / ‖features‖", "rank of a head", "rank of the features")
    if eigen is not None:
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
        if eigen is not None:
            share, cosines = agreement(after.numpy(), eigen[1])
            angles = np.degrees(np.arccos(cosines[[0, -1]]))
            row += [
                f"{share:.3f}",
                f"{(cosines**2).mean():.3f}",
                *(f"{angle:.0f}°" for angle in angles),
            ]
        rows.append(tuple(row))
    return Table(rows, header)


def _spectra(spectra: Sequence[np.ndarray]) -> Figure:
    """Singular values by layer, in falling order, each over the first of its head."""
    series, bands = {}, {}
    for number, s in enumerate(spectra, 1):
        ratios = np.maximum(s / s[:, :1], _ROUNDING)
        places = range(1, ratios.shape[1] + 1)
        series[f"layer {number}"] = places, ratios.mean(axis=0).tolist()
        if len(s) > 1:
            bands[f"layer {number}"] = ratios.min(axis=0).tolist(), ratios.max(axis=0).tolist()
    return curves(series, "number", "singular value / largest", bands=bands, markers=False)


def _functions(domain: Domain, layers: Sequence[Latent], beside: np.ndarray | None) -> Figure:
    """Rows of functions: of the first layer, of the last layer, and eigenfunctions."""
    shown = {number: layers[number - 1] for number in dict.fromkeys((1, len(layers)))}
    rows, names = [], [f"layer {number}" for number in shown]
    for layer in shown.values():
        functions, shares = _leading(layer.after[0].double().numpy(), _DRAWN)
        titles = [f"{100 * share:.3g} %" for share in shares]
        rows.append(_row(domain, functions, titles, MODEL))
    if beside is not None:
        first = beside[:, :_DRAWN]
        rows.append(_row(domain, first, [""] * first.shape[1], TRUTH))
        names.append("eigenfunctions")
    return sheet(rows, names)


def _row(
    domain: Domain, functions: np.ndarray, titles: Sequence[str], ink: str
) -> list[Panel | Curves | None]:
    """A row of functions (n, k), scaled to mean square 1 and a positive largest value."""
    row = list[Panel | Curves | None]()
    for f, title in zip(functions.T, titles, strict=True):
        values = (f / np.sqrt(np.mean(f**2)) * np.sign(f[np.abs(f).argmax()])).reshape(domain.shape)
        if domain.dim == 1:
            values = values.round(6)  # so that a constant is drawn as one
            row.append(Curves([(*line(domain, values), ink, "-", "")], title))
        else:
            row.append(Panel(domain, values, _LOOK, _LOOK.scale(values), title, None))
    return row
