r"""The discrete inf-sup constant of Galerkin attention against n, with and without softmax.

Let Q (n, r) and K (n, d) be the queries and keys of a head at n points of spacing h = 1/n. The
columns of Q span the value space Q_h of the theorems. The columns of K span the key space K_h,
which is V_h in Theorem 4.3. The form and the norms are those of assumption D12 and equation (44),

    b(k, q) = h Σ_i k(x_i) q(x_i),   ‖k‖² = h Σ_i k(x_i)²,   ‖q‖² = h Σ_i q(x_i)².

The constant of the estimates (15) and (16) is

    β = min_{q in Q_h} max_{k in K_h} b(k, q) / (‖k‖ ‖q‖).

It is the smallest generalised singular value of B = h QᵀK: the smallest singular value of
M_Q^(-1/2) B M_K^(-1/2) with the Gram matrices M_Q = h QᵀQ and M_K = h KᵀK. Lemma D.6 proves the
lower bound c = σ_min(B)/(c_K c_Q), where (51) defines c_K² and c_Q² as the largest eigenvalues of
the Gram matrices. The theorems need a bound that does not depend on n.

Remark D.7 is about keys S(K), with a softmax over the points in each column. The functional is then
b(S(k), q) = h Σ_i S(k)(x_i) q(x_i). Its constant is measured in two norms. One is the norm of the
functions S(k). The other is the norm of the keys k, which the map from values to keys needs:

    β_S = min_q max_μ b(Σ_j μ_j S(k_j), q) / (‖Σ_j μ_j k_j‖ ‖q‖).

Softmax weights sum to 1 over n points, so they are of size 1/n: β_S = O(1/n) where β is constant.

References: S. Cao, Choose a Transformer: Fourier or Galerkin, NeurIPS 2021, Theorems 4.3 and 4.4,
Lemma D.6 and Remark D.7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.linalg import eigh, solve_triangular

from operators.models.galerkin import GalerkinTransformer
from operators.nn.encoder import EncoderLayer
from pipelines.reports.document import Table
from pipelines.reports.figures import curves

Functions = Float[np.ndarray, "n d"]
FULL, QUICK = (128, 256, 512, 1024, 2048, 4096, 8192), (128, 256, 512)
_RANK = 1e-4  # functions below this share of the largest singular value are not in a span


@dataclass(frozen=True)
class Constants:
    """Constants of one pair of spaces at one n.

    Args:
        exact: β, the smallest generalised singular value.
        bound: c, the lower bound of Lemma D.6.
        softmax: The constant β of the functions S(k) in their own norm.
        softmax_of_keys: β_S, in the norm of the keys k.
    """

    exact: float
    bound: float
    softmax: float
    softmax_of_keys: float


def inf_sup(q: Functions, k: Functions, norm_of: Functions | None = None) -> float:
    """min_q max_k b(k, q)/(‖k‖ ‖q‖) over the spans of the columns, by generalised singular values.

    Args:
        q, k: Columns of functions at n equally spaced points, of full rank.
        norm_of: Columns whose combinations have the norm ‖k‖; by default k itself.

    >>> x = np.arange(64) / 64 * 2 * np.pi
    >>> round(inf_sup(np.sin(x)[:, None], np.stack([np.sin(x + 1), np.cos(3 * x)], 1)), 12)
    0.540302305868
    """
    h = 1 / len(q)
    norm_of = k if norm_of is None else norm_of
    left, right = (np.linalg.cholesky(h * f.T @ f) for f in (q, norm_of))
    b = solve_triangular(left, h * q.T @ k, lower=True)
    return float(np.linalg.svd(solve_triangular(right, b.T, lower=True), compute_uv=False)[-1])


def lower_bound(q: Functions, k: Functions) -> float:
    """c = σ_min(B)/(c_K c_Q) of Lemma D.6; at most `inf_sup`."""
    h = 1 / len(q)
    smallest = np.linalg.svd(h * q.T @ k, compute_uv=False)[-1]
    norms = [np.sqrt(eigh(h * f.T @ f, eigvals_only=True)[-1]) for f in (q, k)]
    return float(smallest / (norms[0] * norms[1]))


def softmax_over_points(k: Functions) -> Functions:
    """exp k / Σ_i exp k(x_i) for each column k: the keys of the linear variant in the paper."""
    e = np.exp(k - k.max(axis=0))
    return e / e.sum(axis=0)


def constants(q: Functions, k: Functions) -> Constants:
    """All constants of one pair of spaces."""
    s = softmax_over_points(k)
    return Constants(inf_sup(q, k), lower_bound(q, k), inf_sup(q, s), inf_sup(q, s, k))


def spectral(n: int) -> tuple[Functions, Functions]:
    """Globally supported functions: 8 waves w as values. Keys are cos ½ w + sin ½ w', with 8 waves
    w' of higher frequency, and 8 more waves. The exact constant is cos ½ = 0.878 for every n."""
    x = 2 * np.pi * np.arange(n) / n
    waves = np.sqrt(2) * np.stack([f(m * x) for m in range(1, 13) for f in (np.sin, np.cos)], 1)
    low, middle, high = np.split(waves, 3, axis=1)
    return low, np.hstack([np.cos(0.5) * low + np.sin(0.5) * middle, high])


def nodal(n: int) -> tuple[Functions, Functions]:
    """Locally supported functions: 24 hats as values and 32 as keys, the same for every n."""
    x, width = np.arange(n) / n, 1 / 32

    def hats(shift: float, count: int) -> Functions:
        centres = (np.arange(count) + shift) / count
        distance = abs((x[:, None] - centres + 0.5) % 1 - 0.5)
        return np.maximum(1 - distance / width, 0)

    return hats(0.0, 24), hats(0.25, 32)


def heads(seed: int = 0) -> Callable[[int], tuple[Functions, Functions]]:
    """Queries and keys of the last layer of a Galerkin Transformer (preset `burgers-gt`) as
    initialised, for an input that is the same function at every n. The value space has the leading
    functions of the queries, above 1e-4 of the largest singular value at n = 8192."""
    torch.manual_seed(seed)
    model = GalerkinTransformer(attention_dropout=0.0).double().eval()
    last = [layer for layer in model.modules() if isinstance(layer, EncoderLayer)][-1]

    def features(n: int) -> tuple[Functions, Functions]:
        x = torch.arange(n, dtype=torch.float64)[:, None] / n
        a = torch.sin(2 * torch.pi * x) + 0.5 * torch.cos(4 * torch.pi * x) + 0.2
        of_heads: list[torch.Tensor] = []

        def keep(layer: EncoderLayer, inputs: tuple[torch.Tensor, ...]) -> None:
            assert layer.attention is not None
            of_heads.extend(layer.attention.of_heads(*inputs)[:2])

        handle = last.register_forward_pre_hook(keep)
        with torch.no_grad():
            model(a[None], x)
        handle.remove()
        q, k = (t[0, 0].numpy() for t in of_heads)
        return q, k

    fine = features(FULL[-1])
    right = [np.linalg.svd(f, full_matrices=False) for f in fine]
    ranks = [int((s > _RANK * s[0]).sum()) for _, s, _ in right]
    ranks[0] = min(ranks)

    def spaces(n: int) -> tuple[Functions, Functions]:
        q, k = features(n)
        return q @ right[0][2][: ranks[0]].T, k @ right[1][2][: ranks[1]].T

    return spaces


SPACES: dict[str, Callable[[], Callable[[int], tuple[Functions, Functions]]]] = {
    "waves": lambda: spectral,
    "hats": lambda: nodal,
    "heads": heads,
}


def measured(sizes: Sequence[int]) -> dict[str, dict[int, Constants]]:
    """Constants by the name of the spaces and by n."""
    by_spaces: dict[str, dict[int, Constants]] = {}
    for name, make in SPACES.items():
        spaces = make()
        by_spaces[name] = {n: constants(*spaces(n)) for n in sizes}
    return by_spaces


def rate(values: Sequence[float], sizes: Sequence[int]) -> float:
    """The exponent p of a fit values = c n^p."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def table(by_spaces: dict[str, dict[int, Constants]]) -> Table:
    """Constants, and the exponent of n of each column in the last row of each pair of spaces."""
    header = ("spaces", "n", "β", "c of Lemma D.6", "β, softmax, own norm", "β_S, norm of keys")
    rows: list[tuple[str, ...]] = []
    for name, by_size in by_spaces.items():
        columns = [vars(c).values() for c in by_size.values()]
        for n, values in zip(by_size, columns, strict=True):
            rows.append((name, str(n), *(f"{v:.3g}" for v in values)))
        fits = [rate(list(column), list(by_size)) for column in zip(*columns, strict=True)]
        rows.append((name, "exponent of n", *(f"{fit:+.2f}" for fit in fits)))
    return Table(rows, header)


def drawn(by_spaces: dict[str, dict[int, Constants]]) -> Figure:
    """β without softmax and β_S with softmax against n."""
    series: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    for name, by_size in by_spaces.items():
        sizes = list(by_size)
        series[f"{name}: β"] = sizes, [c.exact for c in by_size.values()]
        series[f"{name}: β_S, softmax"] = sizes, [c.softmax_of_keys for c in by_size.values()]
    ticks = {float(n): str(n) for n in next(iter(by_spaces.values()))}
    return curves(series, "number of points n", "inf-sup constant", log=True, ticks=ticks)
