r"""How normalisations carry the scale of functions, and the decay of energy that they learn.

Layers. For features s y, with all biases zero and eps = 0, the attention of a layer, z(s y), is
homogeneous in s. Its degree is 3 without norms, because z = Q (KᵀV)/n is cubic. It is 1 where K
and V are normalised, by the layer norm of each point and head (Galerkin type, equation 6) or by
instance norm (each feature over the points). The regular layer norm acts after the sum with the
residual branch (equation 7): there the output of the layer has degree 0, and the scale is lost.

Decay. Multiplying Burgers' equation by u gives the energy law (19), d/dt ½∫u² = -ν ∫ u_x², so that
the energy E(T)/E(0) that is left at the final time is a functional of u₀. Appendices C.2 and D.4
expect that a normalisation which keeps the scale learns this decay better. Small Galerkin
Transformers, equal except for the normalisation, are trained on u₀ -> u(T). The decay of their
predictions is compared with the true decay, also for inputs twice and half as large as in training.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, C.2 and D.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from operators.models.galerkin import GalerkinTransformer
from operators.nn.attention import GALERKIN, HeadNorm, InstanceHeadNorm
from operators.nn.encoder import Attention
from operators.norms import relative_l2
from pdegen.domains import PeriodicGrid
from pdegen.equations.burgers.solver import ColeHopf
from pdegen.recipe import load_recipe
from pipelines.reports.document import Table
from pipelines.reports.figures import WIDE, styled
from pipelines.reports.palette import INKS, MARKERS, QUIET

Kind = Literal["head", "layer", "instance"]
KINDS: tuple[Kind, ...] = ("head", "instance", "layer")
WORDS = {
    "none": "none",
    "head": "layer norm of K and V (Galerkin type)",
    "instance": "instance norm of K and V",
    "layer": "layer norm after the sum (regular)",
}
SCALES = (0.5, 1.0, 2.0)
POINTS, TRAINING, TEST = 128, 256, 64
VISCOSITY, TIME = 0.1 / (2 * np.pi), 1 / (2 * np.pi)


def degree(kind: Kind | Literal["none"], seed: int = 0) -> float:
    """d in ‖z(s y)‖ = c s^d, by a fit for s from 0.1 to 10; of the layer's output for "layer"."""
    torch.manual_seed(seed)
    norm = {"head": HeadNorm, "instance": InstanceHeadNorm}.get(kind)
    attention = Attention(16, 2, 0, GALERKIN, norm, torch.nn.Dropout(0.0), 0.0, 1.0, 0.1).double()
    torch.nn.init.zeros_(attention.out.bias)
    y, x = torch.randn(1, POINTS, 16, dtype=torch.float64), torch.zeros(POINTS, 0).double()
    scales = np.geomspace(0.1, 10, 5)
    with torch.no_grad():
        outputs = []
        for s in scales:
            z = attention(float(s) * y, x)
            if kind == "layer":
                z = torch.nn.functional.layer_norm(float(s) * y + z, (16,), eps=0.0)
            outputs.append(float(z.norm()))
    return float(np.polyfit(np.log(scales), np.log(outputs), 1)[0])


@dataclass(frozen=True)
class Pairs:
    """u₀ and u(T) of Burgers' equation, shape (samples, points)."""

    a: Float[Tensor, "samples n"]
    u: Float[Tensor, "samples n"]

    @property
    def decay(self) -> Float[np.ndarray, " samples"]:
        """E(T)/E(0)."""
        return decay(self.a, self.u)


def decay(a: Float[Tensor, "samples n"], u: Float[Tensor, "samples n"]) -> np.ndarray:
    """‖u‖²/‖a‖² of each sample.

    >>> decay(torch.ones(1, 4), 0.5 * torch.ones(1, 4))
    array([0.25], dtype=float32)
    """
    return (u.square().mean(dim=1) / a.square().mean(dim=1)).numpy()


def burgers(samples: range, scale: float = 1.0) -> Pairs:
    """Pairs of the law of `burgers-r10`, with initial values multiplied by `scale`."""
    settings = {"problem.resolution": 1024, "problem.solver.resolution": 2048}
    problem = load_recipe("burgers-quick").with_overrides(settings).problem
    a = scale * problem.compute(0, samples)["a"].astype(np.float64)
    u = ColeHopf(PeriodicGrid(1024), VISCOSITY, tolerance=1e-4)(a, TIME)
    step = 1024 // POINTS
    a, u = (torch.from_numpy(np.ascontiguousarray(f[:, ::step])).float() for f in (a, u))
    return Pairs(a, u)


def trained(kind: Kind, pairs: Pairs, epochs: int, seed: int = 0) -> GalerkinTransformer:
    """A small Galerkin Transformer, trained by Adam (1cycle, 2e-3) on relative L² errors."""
    torch.manual_seed(seed)
    model = GalerkinTransformer(
        width=48, depth=2, heads=1, feedforward=96, modes=12, decoder_width=24, normalization=kind
    )
    x, batch = _points(), 16
    steps = epochs * (len(pairs.a) // batch)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(pairs.a)).split(batch):
            optimizer.zero_grad()
            prediction = model(pairs.a[rows, :, None], x)[..., 0]
            relative_l2(prediction, pairs.u[rows]).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval()


def _points() -> Float[Tensor, "n 1"]:
    return torch.arange(POINTS)[:, None] / POINTS


@dataclass(frozen=True)
class Learned:
    """Errors of the model with one normalisation, by the scale of the inputs.

    Args:
        error: Mean relative L² error of u(T).
        true, predicted: E(T)/E(0) of each test sample, and that of its prediction.
    """

    error: dict[float, float]
    true: dict[float, np.ndarray]
    predicted: dict[float, np.ndarray]

    def decay_error(self, scale: float) -> float:
        """Mean of |predicted/true - 1|."""
        return float(np.mean(abs(self.predicted[scale] / self.true[scale] - 1)))


def measured(epochs: int) -> dict[Kind, Learned]:
    """Train and test one model for each normalisation."""
    pairs = burgers(range(TRAINING))
    tests = {s: burgers(range(TRAINING, TRAINING + TEST), s) for s in SCALES}
    results: dict[Kind, Learned] = {}
    for kind in KINDS:
        model, x = trained(kind, pairs, epochs), _points()
        with torch.no_grad():
            predictions = {s: model(t.a[..., None], x)[..., 0] for s, t in tests.items()}
        errors = {s: float(relative_l2(p, tests[s].u).mean()) for s, p in predictions.items()}
        results[kind] = Learned(
            errors,
            {s: t.decay for s, t in tests.items()},
            {s: decay(tests[s].a, p) for s, p in predictions.items()},
        )
    return results


def table(results: dict[Kind, Learned]) -> Table:
    """Degrees, errors of u(T) and errors of the decay by the scale of the inputs."""
    header = (
        "normalisation", "degree", *(f"error of u, inputs × {s:g}" for s in SCALES),
        *(f"error of the decay, × {s:g}" for s in SCALES),
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [(WORDS["none"], f"{degree('none'):.2f}", *["–"] * 6)]
    for kind, learned in results.items():
        errors = (learned.error[s] for s in SCALES)
        decays = (learned.decay_error(s) for s in SCALES)
        figures = (f"{value:.3g}" for value in (*errors, *decays))
        rows.append((WORDS[kind], f"{abs(degree(kind)):.2f}", *figures))
    return Table(rows, header)


@styled
def drawn(results: dict[Kind, Learned]) -> Figure:
    """Predicted against true decay of each test sample, a panel for each scale of the inputs."""
    figure = Figure(figsize=(WIDE, 2.9))
    axes: Sequence = figure.subplots(1, len(SCALES))
    for axis, scale in zip(axes, SCALES, strict=True):
        true = next(iter(results.values())).true[scale]
        ends = [true.min(), true.max()]
        axis.plot(ends, ends, color=QUIET, lw=0.9, ls=":")
        for k, (kind, learned) in enumerate(results.items()):
            axis.plot(
                true, learned.predicted[scale], ls="", marker=MARKERS[k], ms=3, color=INKS[k],
                label=WORDS[kind], alpha=0.7,
            )  # fmt: skip
        axis.set(title=f"inputs × {scale:g}", xlabel="true E(T)/E(0)")
    axes[0].set_ylabel("predicted E(T)/E(0)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2)
    return figure
