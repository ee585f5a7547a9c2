"""Training steps of the published Burgers and Darcy models against their plain transcriptions.

python -m benchmarks.training
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.show import show
from operators.galerkin import GalerkinTransformer
from operators.galerkin2d import GalerkinTransformer2d
from operators.norms import RelativeH1, WeightedH1
from operators.step import Loss
from pipelines.bench.timing import interleaved, ratio
from tests.oracles.plain_galerkin import PlainGalerkinTransformer
from tests.oracles.plain_galerkin2d import PlainGalerkinTransformer2d


def step_of(model: nn.Module, n: int, batch: int, fused: bool, dim: int = 1) -> Callable[[], None]:
    """A whole training step: forward, loss, backward, clipping, Adam."""
    a, u = torch.rand(batch, *[n] * dim, 1) + 1, torch.randn(batch, *[n] * dim, 1)
    axes = [(torch.arange(n) + 0.5) / n] * dim
    x = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
    loss: Loss = RelativeH1() if dim == 1 else WeightedH1()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(a, x), u, a).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.999)
        optimizer.step()

    return step


def main() -> None:
    torch.manual_seed(0)
    figures = {}
    for n, batch, rounds in ((512, 8, 15), (2048, 4, 7)):
        model, plain = GalerkinTransformer(), PlainGalerkinTransformer()
        plain.copy_from(model)
        jobs = {
            "plain": step_of(plain, n, batch, fused=False),
            "ours": step_of(model, n, batch, fused=True),
        }
        seconds = interleaved(jobs, rounds=rounds, repeats=3)
        figures[f"n={n}, batch {batch}"] = {
            "plain / ours": ratio(seconds, "plain", "ours"),
            "ours, seconds": round(sorted(seconds["ours"])[rounds // 2], 4),
            "threads": torch.get_num_threads(),
        }
    for n, latent in ((85, 29), (141, 43)):
        model2d = GalerkinTransformer2d(latent=latent)
        plain2d = PlainGalerkinTransformer2d(
            n_c=latent, dropout=0.05, encoder_dropout=0.05, feedforward_dropout=0.1
        )
        plain2d.copy_from(model2d)
        jobs = {
            "plain": step_of(plain2d, n, 4, fused=False, dim=2),
            "ours": step_of(model2d, n, 4, fused=True, dim=2),
        }
        seconds = interleaved(jobs, rounds=5)
        figures[f"Darcy, {n} x {n}, attention on {latent} x {latent}, batch 4"] = {
            "plain / ours": ratio(seconds, "plain", "ours"),
            "ours, seconds": round(sorted(seconds["ours"])[2], 4),
            "threads": torch.get_num_threads(),
        }
    show("training-plain", figures)


if __name__ == "__main__":
    main()
