"""A training step of the published Burgers model against its plain transcription.

python -m benchmarks.training
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.timing import interleaved, ratio, write_result
from operators.galerkin import GalerkinTransformer
from operators.norms import RelativeH1
from tests.oracles.plain_galerkin import PlainGalerkinTransformer


def step_of(model: nn.Module, n: int, batch: int, fused: bool) -> Callable[[], None]:
    """A whole training step: forward, loss, backward, clipping, Adam."""
    a = torch.randn(batch, n, 1)
    u = torch.randn(batch, n, 1)
    x = torch.arange(n)[:, None] / n
    loss = RelativeH1()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(a, x), u).backward()
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
            "plain / ours": round(ratio(seconds, "plain", "ours"), 3),
            "ours, seconds": round(sorted(seconds["ours"])[rounds // 2], 4),
            "threads": torch.get_num_threads(),
        }
    write_result("training", figures)


if __name__ == "__main__":
    main()
