"""Time of a small training step on two threads, by how long threads spin before they sleep.

python -m benchmarks.waiting [--spins 0 1000 10000] [--busy N] [--rounds N]

A step is that of the experiment burgers-quick. Each count of spins runs in processes of its own, in
turns, beside N programs that each keep a core busy; 100 spins take about 1 µs. "1 thread" runs
without other threads. OMP_WAIT_POLICY is PASSIVE, as in `pdegen`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from statistics import median

_STEPS = 25
_BUSY = "while True: pass"


def child(threads: int) -> None:
    """Print the milliseconds of a step."""
    import torch

    from operators.data import Batch
    from operators.models.galerkin import GalerkinTransformer
    from operators.norms import RelativeH1
    from operators.training.optimizers import Soap
    from operators.training.step import Step, keep_memory
    from operators.transforms import Normalizer, Predictor

    torch.set_num_threads(threads)
    keep_memory()
    torch.manual_seed(0)
    model = GalerkinTransformer(width=64, feedforward=128, decoder_width=32)
    predictor = Predictor(model, Normalizer.identity(1), Normalizer.identity(1))
    gradient = Step(predictor, torch.arange(128)[:, None] / 128, None, RelativeH1(), 1.0)
    optimizer, batch = Soap()(predictor.parameters(), 1e-3), Batch(*torch.randn(2, 16, 128, 1))

    def steps(count: int) -> None:
        for _ in range(count):
            gradient(batch, seed=0)
            optimizer.step()

    steps(12)  # with one update of the bases
    start = time.perf_counter()
    steps(_STEPS)
    print((time.perf_counter() - start) / _STEPS * 1e3)


def milliseconds(threads: int, spins: int) -> float:
    kept = {key: v for key, v in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    environment = {**kept, "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": str(spins)}
    program = [sys.executable, "-m", "benchmarks.waiting", "--child", str(threads)]
    done = subprocess.run(program, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spins", type=int, nargs="+", default=[0, 1000, 10000])
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    cases = {"1 thread": (1, 0)} | {f"{n} spins": (2, n) for n in options.spins}
    times: dict[str, list[float]] = {name: [] for name in cases}
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(options.busy)]
    try:
        for _ in range(options.rounds):
            for name, case in cases.items():
                times[name].append(milliseconds(*case))
    finally:
        for program in busy:
            program.kill()
            program.wait()
    for name, values in times.items():
        print(f"{name:12}{median(values):7.1f} ms a step ({', '.join(f'{v:.1f}' for v in values)})")
    print(f"load {os.getloadavg()[0]:.1f}, {options.busy} busy programs beside")


if __name__ == "__main__":
    main()
