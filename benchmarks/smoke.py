"""One small training step of every operator in every execution mode of a device; takes minutes.

python -m benchmarks.smoke [--device cuda] [--out FOLDER] [--only OPERATOR ...] [--resume]

Each operator runs in its own process, so a crash or hang does not stop the others. Its row is
printed and appended to FOLDER/smoke.jsonl at once; the final table lists failures with reasons.
With --resume, operators are skipped that have a complete row of the same code.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config

from benchmarks.history import append, commit
from benchmarks.training import functions
from operators.data import Batch
from operators.norms import RelativeL2
from operators.training.step import AS_WRITTEN, Acceleration, Step
from operators.transforms import Normalizer, Predictor
from pipelines.config.declared import MODELS, parse_model
from pipelines.studies.cost import clock_of

_LIMIT = 240  # seconds for a row
_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"  # shared among all rows
_SMALL = {"width": 32, "depth": 2, "heads": 4}
_SETTINGS: Mapping[str, tuple[int, dict[str, Any]]] = {  # dimension, settings
    "galerkin-transformer": (1, {"depth": 2}),
    "galerkin-transformer-2d": (2, {"depth": 2, "latent": 16, "dropout": 0.0,
                                    "downscaler_dropout": 0.0, "feedforward_dropout": 0.0}),
    "transformer": (1, {**_SMALL, "feedforward": 64}),
    "fno": (2, {"width": 16, "depth": 2, "modes": 6}),
    "deeponet": (1, {"sensors": 64}),
    "shift-deeponet": (1, {"sensors": 64, "basis": 16, "width": 32, "trunk_width": 16}),
    "pod-deeponet": (1, {"sensors": 64, "basis": 2}),
    "ono": (2, {**_SMALL, "eigenfunctions": 8, "attention": "linear"}),
    "pit": (1, {"width": 32, "heads": 4, "depth": 2, "latent": 16}),
    "transolver": (2, {**_SMALL, "slices": 16, "feedforward": 64}),
    "lrsa": (2, {**_SMALL, "latents": 16, "feedforward": 64}),
    "f-fno": (2, {"width": 16, "depth": 3, "modes": 6}),
    "u-fno": (2, {"width": 16, "depth": 1, "u_depth": 1, "modes": 6, "levels": 2}),
    "unet": (2, {"width": 12, "levels": 2}),
    "pit-2025": (1, {"width": 32, "depth": 2, "latent": 16}),
    "mwt": (2, {"channels": 4, "polynomials": 3, "modes": 5}),
    "lno": (2, {"width": 32, "depth": 1, "heads": 4, "latents": 32}),
    "geo-fno": (2, {"width": 16, "depth": 3, "modes": 6, "latent": 16}),
    "gnot": (2, {"width": 32, "depth": 2, "heads": 1, "feedforward": 64, "mlp_depth": 1}),
    "gaot": (2, {"lattice": 16, "radius": 0.3, "channels": 16, "hidden": 16, "width": 64,
                 "depth": 2, "heads": 4, "scaling": "unit"}),
    "upt": (2, {"supernodes": 32, "radius": 0.1, "neighbours": 8, "latents": 16, "encoder_depth": 1,
                "depth": 1, "decoder_depth": 1}),
    "cno": (2, {"width": 8, "levels": 2, "blocks": 1, "neck_blocks": 1, "lift_width": 16}),
    "linear-no": (2, {**_SMALL, "slices": 16, "feedforward": 64}),
    "ipot": (2, {"width": 32, "depth": 2, "latents": 16, "bands": 4, "resolution": 8}),
    "flare": (2, {**_SMALL, "latents": 16, "mlp_depth": 1}),
    "lsm": (2, {"width": 16, "levels": 3, "patches": 4, "heads": 4, "normalization": "instance"}),
    "transolver-plus": (2, {**_SMALL, "slices": 16, "feedforward": 64}),
    "oformer": (2, {"width": 32, "latent": 32, "heads": 1, "scales": [4.0, 1.0],
                    "resolution": 8.0, "decoder": "points", "decoder_scale": 2.0,
                    "dropout": 0.0, "embed_dropout": 0.0}),
    "ht-net": (2, {"width": 16, "levels": 2, "modes": 5, "decoder_depth": 2}),
    "factformer": (2, {"width": 32, "depth": 2, "heads": 2, "head_features": 8}),
    "scot": (2, {"size": 16, "patch": 2, "width": 16, "depths": [2, 2], "heads": [2, 4],
                 "skips": [1, 0], "window": 4, "ratio": 2, "time": "none"}),
    "xd": (2, {"width": 12, "depth": 2, "kernel": 5, "size": 32}),
}  # fmt: skip
POINTS = {1: 64, 2: 24}


def _settings(name: str) -> tuple[int, dict[str, Any]]:
    """Dimension and settings of an operator; those of its class if the table has none."""
    return _SETTINGS.get(name) or (max(parse_model({"name": name}).dims()), {})


# every registered operator except those of the package neuraloperator
OPERATORS = {name: _settings(name) for name in MODELS if name != "neuraloperator"}


def ways(device: torch.device) -> dict[str, tuple[Acceleration, float]]:
    """Execution modes of a step, each with the tolerance of its loss against the plain step."""
    accelerations = {
        "plain": (AS_WRITTEN, 1e-5),
        "recorded": (Acceleration(graphed=True), 1e-4),
        "bf16": (Acceleration("bf16"), 5e-2),
    }
    if device.type == "cpu":
        return accelerations
    return accelerations | {
        "tf32": (Acceleration("tf32"), 1e-2),
        "compiled": (Acceleration(compiled=True), 1e-3),
        "all, tf32": (Acceleration("tf32", compiled=True, graphed=True), 1e-2),
        "all, bf16": (Acceleration("bf16", compiled=True, graphed=True), 5e-2),
    }


# Compiled kernels would draw other random numbers: here they draw those of the plain step, so that
# operators with randomness in training are compared too.
@torch._inductor.config.patch(fallback_random=True)
def tried(name: str, way: Acceleration, near: float, device: torch.device, loss: float) -> Any:
    """Text of a cell (milliseconds of a step, or the failure) and the loss."""
    dim, settings = OPERATORS[name]
    torch.manual_seed(0)
    operator = parse_model({"name": name, **settings}).build(1, 1, dim)
    a, u, x = (v.to(device) for v in functions(POINTS[dim], 4, dim))
    predictor = Predictor(operator, Normalizer.identity(1), Normalizer.identity(1)).to(device)
    predictor.operator.adapt([u], x)
    step = Step(predictor.train(), x, None, RelativeL2(), 1.0, acceleration=way)
    step_loss = float(step(Batch(a, u), seed=0))
    gradient = torch.stack([p.grad.norm() for p in step.parameters if p.grad is not None])
    if not torch.isfinite(gradient).all():
        return "failed: the gradient is not finite", step_loss
    if not abs(step_loss - loss) <= near * abs(loss):  # nor where it is NaN
        return f"failed: loss {step_loss:.6g}, as written {loss:.6g}", step_loss
    if step.note:
        return f"failed: {step.note}", step_loss
    now = clock_of(device)
    start = now()
    step(Batch(a, u), seed=1)
    return f"{1e3 * (now() - start):.3g} ms", step_loss


def row(name: str, device: torch.device) -> None:
    """Print a line for each execution mode, as soon as it is measured."""
    loss = float("nan")
    for way, (acceleration, near) in ways(device).items():
        try:
            if loss != loss:  # the first mode is the reference of the others
                _, loss = tried(name, acceleration, float("inf"), device, 1.0)
            cell, _ = tried(name, acceleration, near, device, loss)
        except Exception as error:  # any error becomes a cell of the table
            cell = f"failed: {type(error).__name__}: {(str(error) or '?').splitlines()[0]}"
        print(json.dumps([way, cell]), flush=True)


def process(name: str, device: torch.device, threads: int = 1) -> dict[str, str]:
    """The row of an operator, measured in a separate process with so many compile threads."""
    command = [sys.executable, "-m", "benchmarks.smoke", "--device", device.type, "--row", name]
    environment = {**os.environ, _THREADS: str(threads)}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_LIMIT, check=False, env=environment
        )
        last = (done.stderr.decode(errors="replace").splitlines() or ["?"])[-1]
        out, why = done.stdout, f"exit {done.returncode}: {last}"
    except subprocess.TimeoutExpired as late:  # earlier modes are measured
        out, why = late.stdout or b"", f"not done in {_LIMIT} s"
    cells = dict(json.loads(line) for line in out.splitlines() if line.startswith(b"["))
    return {way: cells.get(way, f"failed: {why}") for way in ways(device)}


def whole(cells: Mapping[str, str]) -> bool:
    """Whether all execution modes succeeded."""
    return all(cell[0].isdigit() for cell in cells.values())


def finished(folder: Path, device: torch.device) -> set[str]:
    """Operators with a complete row in FOLDER/smoke.jsonl, by this code on such a device."""
    path = folder / "smoke.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {
        name
        for line in lines
        if line["commit"] == commit() and line["settings"] == {"device": device.type}
        for name, cells in line["figures"].items()
        if whole(cells) and cells.keys() == ways(device).keys()
    }


def table(rows: Mapping[str, Mapping[str, str]]) -> str:
    """Table of milliseconds or "failed", then the reasons of failures."""
    lines = [["", *next(iter(rows.values()))]]
    lines += [
        [n, *(c if c[0].isdigit() else "failed" for c in r.values())] for n, r in rows.items()
    ]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ["  ".join(c.ljust(w) for c, w in zip(line, wide, strict=True)) for line in lines]
    why = [f"{n}, {w}: {c}" for n, r in rows.items() for w, c in r.items() if not c[0].isdigit()]
    return "\n".join([*shown, *why])


def measured(
    names: Sequence[str], device: torch.device, out: Path | None
) -> dict[str, dict[str, str]]:
    """Rows of operators, several at a time; each is printed and stored when it is complete."""
    cores = len(os.sched_getaffinity(0))
    workers = max(1, min(len(names), cores - 1))
    threads = max(1, int(os.environ.get(_THREADS) or cores) // workers)
    rows: dict[str, dict[str, str]] = {}
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(process, name, device, threads): name for name in names}
        for future in as_completed(running):
            name, row = running[future], future.result()
            rows[name] = row
            print(f"{name}: " + ", ".join(f"{way} {cell}" for way, cell in row.items()), flush=True)
            if out is not None:
                append(out, "smoke", {name: row}, device=device.type)
    return {name: rows[name] for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="+", choices=OPERATORS, metavar="OPERATOR")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--row", choices=OPERATORS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device(options.device)
    if options.row:
        row(options.row, device)
        return 0
    names = options.only or list(OPERATORS)
    if options.resume and options.out is None:
        parser.error("--resume needs --out")
    if options.resume:
        done = finished(options.out, device)
        names = [name for name in names if name not in done]
    if not names:
        return 0
    rows = measured(names, device, options.out)
    print(table(rows))
    return not all(map(whole, rows.values()))


if __name__ == "__main__":
    sys.exit(main())
