"""Training steps of the published Burgers and Darcy models against plain transcriptions.

python -m benchmarks.training
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

from benchmarks.history import show
from benchmarks.timing import interleaved, ratio
from operators.base import Operator
from operators.data import Batch
from operators.models.galerkin import GalerkinTransformer
from operators.models.galerkin2d import GalerkinTransformer2d
from operators.norms import RelativeH1, WeightedH1
from operators.training.optimizers import Adam
from operators.training.step import Loss, Step, keep_memory
from operators.transforms import Normalizer, Predictor
from tests.oracles.plain_galerkin import PlainGalerkinTransformer
from tests.oracles.plain_galerkin2d import PlainGalerkinTransformer2d

Job = Callable[[], object]


def functions(n: int, batch: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random a and u, and their points."""
    a, u = torch.rand(batch, *[n] * dim, 1) + 1, torch.randn(batch, *[n] * dim, 1)
    axes = [(torch.arange(n) + 0.5) / n] * dim
    return a, u, torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def plain_step(model: nn.Module, loss: Loss, n: int, batch: int, dim: int) -> Job:
    """A step of a plain training script: forward, loss, backward, clipping, Adam."""
    a, u, x = functions(n, batch, dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(a, x), u, a).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.999)
        optimizer.step()

    return step


def our_step(operator: Operator, loss: Loss, n: int, batch: int, dim: int) -> Job:
    """The same step by the code of `pdegen train`, including normalisation."""
    a, u, x = functions(n, batch, dim)
    predictor = Predictor(operator, Normalizer.identity(1), Normalizer.identity(1))
    gradient = Step(predictor, x, None, loss, 0.999)
    optimizer = Adam()(predictor.parameters(), 1e-4)

    def step() -> None:
        gradient(Batch(a, u), seed=0)
        optimizer.step()

    return step


def against_plain(
    operator: Operator, plain: nn.Module, loss: Loss, n: int, batch: int, rounds: int
) -> dict[str, float]:
    size = (n, batch, operator.dim)
    jobs = {"plain": plain_step(plain, loss, *size), "ours": our_step(operator, loss, *size)}
    seconds = interleaved(jobs, rounds=rounds, repeats=3 if operator.dim == 1 else 1)
    return {
        "plain / ours": ratio(seconds, "plain", "ours"),
        "ours, seconds": round(median(seconds["ours"]), 4),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    torch.manual_seed(0)
    keep_memory()  # as in training
    figures = {}
    for n, batch in ((512, 8), (2048, 4)):
        model, plain = GalerkinTransformer(), PlainGalerkinTransformer()
        plain.copy_from(model)
        figures[f"n={n}, batch {batch}"] = against_plain(model, plain, RelativeH1(), n, batch, 15)
    for n, latent in ((85, 29), (141, 43)):
        model2d = GalerkinTransformer2d(latent=latent)
        plain2d = PlainGalerkinTransformer2d(
            n_c=latent, dropout=0.05, encoder_dropout=0.05, feedforward_dropout=0.1
        )
        plain2d.copy_from(model2d)
        figures[f"Darcy, {n} x {n}, attention on {latent} x {latent}, batch 4"] = against_plain(
            model2d, plain2d, WeightedH1(), n, 4, 5
        )
    show("training-plain", figures)


if __name__ == "__main__":
    main()
