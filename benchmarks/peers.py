"""Training steps of operators against plain transcriptions of released modules and against
libraries, and against the products of our step alone. A step is forward, loss, backward, clipping
and Adam.

python -m benchmarks.peers [NAMES]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from benchmarks.history import show
from benchmarks.products import alone, products_of
from benchmarks.timing import interleaved, ratio
from benchmarks.training import our_step, plain_step
from operators.base import Operator
from operators.models.deeponet import DeepONet
from operators.models.lrsa import LRSA
from operators.models.ono import ONO
from operators.models.transformer import Transformer
from operators.models.transolver import Transolver
from operators.norms import RelativeL2
from operators.training.step import keep_memory
from tests.oracles.plain_lrsa import PlainLRSA
from tests.oracles.plain_ono import PlainONO
from tests.oracles.plain_operators import PlainDeepONet, PlainTransformer
from tests.oracles.plain_transolver import PlainTransolver


@dataclass(frozen=True)
class Peer:
    """Our model and another implementation of the same function.

    Args:
        ours, theirs: Functions that build the two models.
        n, batch: Number of points along each axis, and samples per step.
        rounds, repeats: Number of interleaved rounds, and steps per round.
    """

    ours: Callable[[], Operator]
    theirs: Callable[[], nn.Module]
    n: int
    batch: int
    rounds: int = 5
    repeats: int = 1

    def __call__(self) -> dict[str, float]:
        torch.manual_seed(0)
        model, plain = self.ours(), self.theirs()
        plain.copy_from(model)  # pyright: ignore[reportCallIssue]
        size = (self.n, self.batch, model.dim)
        theirs = plain_step(plain, RelativeL2(), *size)
        ours = our_step(model, RelativeL2(), *size)
        jobs = {
            "theirs": theirs,
            "ours": ours,
            "products": alone(products_of(ours), torch.device("cpu")),
        }
        # both run on one thread, so time of other processes is not counted
        seconds = interleaved(jobs, self.rounds, self.repeats, clock=time.process_time)
        return {
            "theirs / ours": ratio(seconds, "theirs", "ours"),
            "ours / products alone": ratio(seconds, "ours", "products"),
            "ours, seconds": round(median(seconds["ours"]), 5),
            "threads": torch.get_num_threads(),
        }


def ono(**settings: object) -> Callable[[], Operator]:
    return lambda: ONO(inner_product="sum", **settings)  # pyright: ignore[reportArgumentType]


_LINEAR = {"attention": "linear", "depth": 8, "expansion": 1}
PEERS = {
    "transolver, released": Peer(Transolver, PlainTransolver, 85, 4),
    "ono, nystrom, released": Peer(ono(), PlainONO, 43, 2, rounds=3),
    "ono, linear, released": Peer(
        ono(**_LINEAR, eigenfunctions=16), lambda: PlainONO(**_LINEAR, k=16), 43, 8
    ),
    "lrsa, released": Peer(LRSA, PlainLRSA, 85, 4),
    "deeponet, library": Peer(DeepONet, PlainDeepONet, 128, 8, rounds=25, repeats=20),
    "transformer, PyTorch": Peer(Transformer, PlainTransformer, 1024, 4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(PEERS)}; default: all")
    names = parser.parse_args().names
    chosen = {k: p for k, p in PEERS.items() if not names or any(k.startswith(n) for n in names)}
    if not chosen:
        parser.error(f"none of {', '.join(PEERS)}")
    keep_memory()  # as training does
    show("peers", {name: peer() for name, peer in chosen.items()})


if __name__ == "__main__":
    main()
