"""The operators whose growth is measured: those whose growth in theory is stated here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from benchmarks.growth.measuring import Case, Work
from benchmarks.smoke import OPERATORS as SMALL
from benchmarks.training import functions
from operators.data import Batch
from operators.norms import RelativeL2
from operators.training.step import Step, keep_memory
from operators.transforms import Normalizer, Predictor
from pipelines.config.declared import parse_model
from pipelines.studies.cost import peak_bytes

_BATCH = 2
_SAMPLES_OF_POD = 16  # which give one mode fewer
_LINE = [2**k for k in range(9, 19)]
_PLANE = [24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
_POWERS = [16, 32, 64, 128, 256, 512]  # other sizes are extended to the next power of two
_SIZES = {
    "mwt": _POWERS,
    "xd": _POWERS,
    "scot": _PLANE[1:],
    "pod-deeponet": [2**k for k in range(17, 22)],
}


def _work(name: str, changes: Mapping[str, Any], size: int) -> Work:
    """Gradient steps of an operator with the small settings of `benchmarks.smoke`.

    The peak memory is that of all tensors, without parameters.
    """
    keep_memory()
    dim, settings = SMALL[name]
    torch.manual_seed(0)
    if name in ("xd", "scot"):  # their own grid has as many points
        changes = {"size": size}
    elif name == "pod-deeponet":  # its modes are functions on the points
        changes = {"points": size, "basis": _SAMPLES_OF_POD - 1}
    batch = _BATCH if name != "pod-deeponet" else _SAMPLES_OF_POD
    operator = parse_model({"name": name, **settings, **changes}).build(1, 1, dim)
    a, u, x = functions(size, batch, dim)
    x = x - 0.5 / size  # points j/n, which contain the sensors
    predictor = Predictor(operator, Normalizer.identity(1), Normalizer.identity(1)).train()
    operator.adapt([u], x)
    step = Step(predictor, x, None, RelativeL2(), 1.0)
    optimizer = torch.optim.SGD(predictor.parameters(), 1e-4)
    run = partial(step, Batch(a, u), seed=0)

    def peak() -> int:
        parameters = sum(4 * p.numel() for p in predictor.parameters())
        return peak_bytes(predictor, optimizer, run, torch.device("cpu")) - parameters

    return Work(size**dim, run, peak)


_POINTWISE = "maps at each point"
_SOFTMAX = "softmax attention between all points, whose matrix is never stored"
_LATENT = "attention between points and a fixed number of latent points"
_SLICES = "sums over points into a fixed number of slices"
_MODES = "products with a fixed number of Fourier modes along each axis"
_CONVOLUTIONS = "convolutions over a fixed number of points"
_LINEAR_ATTENTION = "products KᵀV and QKᵀV, linear in the points"
_BASIS = "a fixed number of basis functions at each point; sensors are fixed"

# time and memory in theory, and what they follow from
_THEORY: Mapping[str, tuple[str, str, str]] = {
    "cno": ("n^1.5", "n", "resampling along each axis by a dense matrix"),
    "deeponet": ("n", "n", _BASIS),
    "f-fno": ("n", "n", _MODES),
    "factformer": ("n^1.5", "n", "kernels between the points of each axis, applied to all lines"),
    "flare": ("n", "n", _LATENT),
    "fno": ("n", "n", _MODES),
    "galerkin-transformer": ("n", "n", _LINEAR_ATTENTION),
    "galerkin-transformer-2d": ("n", "n", f"{_CONVOLUTIONS}; attention on a fixed coarse grid"),
    "gaot": ("n", "n", "a fixed number of lattice nodes near each point"),
    "geo-fno": ("n", "n", "products with a fixed number of waves at each point"),
    "gnot": ("n", "n", _LINEAR_ATTENTION),
    "ht-net": ("n", "n", f"attention in windows of a fixed number of points, and {_MODES}"),
    "ipot": ("n", "n", _LATENT),
    "linear-no": ("n", "n", _SLICES),
    "lno": ("n", "n", _LATENT),
    "lrsa": ("n", "n", f"{_LATENT}, and {_CONVOLUTIONS}"),
    "lsm": ("n", "n", f"{_CONVOLUTIONS}; attention between points and tokens of their patch"),
    "mwt": ("n", "n", "kernels at each scale, with 2 or 4 times fewer points at each next one"),
    "oformer": ("n", "n", _LINEAR_ATTENTION),
    "ono": ("n", "n", f"{_LINEAR_ATTENTION}, and a fixed number of eigenfunctions"),
    "pit": ("n", "n", "distances to a fixed number of latent points"),
    "pit-2025": ("n", "n", "distances to a fixed number of latent points"),
    "pod-deeponet": ("n", "n", _BASIS),
    "scot": ("n", "n", "attention in windows of a fixed number of patches"),
    "shift-deeponet": ("n", "n", _BASIS),
    "transformer": ("n^2", "n", _SOFTMAX),
    "transolver": ("n", "n", f"{_SLICES}, and {_CONVOLUTIONS}"),
    "transolver-plus": ("n", "n", _SLICES),
    "u-fno": ("n", "n", f"{_MODES}, and {_CONVOLUTIONS}"),
    "unet": ("n", "n", _CONVOLUTIONS),
    "upt": ("n", "n", "distances to a fixed number of supernodes, a sort along a curve, and "
            "attention to a fixed number of latent tokens"),
    "xd": ("n^1.5", "n", "products with matrices of as many rows as points along each axis"),
}  # fmt: skip
# why measured exponents exceed their theory
_ABOVE: Mapping[str, str] = {
    "shift-deeponet": "the largest steps take 0.9 and 1.8 GB, for which the system makes new pages",
}
# settings beside those of `benchmarks.smoke`
_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "pit": {"sharpening": False}  # sharpening is quadratic in the points
}


def _case(name: str) -> Case:
    time, memory, why = _THEORY[name]
    dim = SMALL[name][0]
    sizes = _SIZES.get(name, _LINE if dim == 1 else _PLANE)
    make = partial(_work, name, _CHANGES.get(name, {}))
    return Case(time, memory, why, sizes, make, _ABOVE.get(name, ""))


OPERATORS: Mapping[str, Case] = {name: _case(name) for name in _THEORY}
