"""Streams that prefer samples with large errors: what they gain at the 99th percentile.

python -m benchmarks.tail burgers --seeds 0 1 2
python -m benchmarks.tail darcy --seeds 0 1 2
python -m benchmarks.tail burgers --table

All rules to draw n of M candidates, `RULES`, have equal numbers of solves and steps, except
"uniform, three times the steps". Each run appends its lines to benchmarks/results/tail.jsonl;
--table prints means over the seeds there that have "uniform", of the last line of each rule and
seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import spearmanr
from torch import Tensor

from benchmarks.history import RESULTS, append
from benchmarks.timing import rounded
from operators.data.samples import inclusion, systematic
from operators.models.fno import FNO
from operators.norms import relative_l2
from operators.training.schedules import OneCycle
from operators.transforms import Normalizer, Predictor
from pdegen.recipe import Recipe, load_recipe
from pipelines.config.experiment import CANDIDATES
from pipelines.runs.data import POWER, UNIFORM, first_number

_AT_ONCE = 2**13  # points that are predicted at a time
_DECAY = 0.99  # of the moving average of the weights

Pair = tuple[Tensor, Tensor]
Errors = Float[Tensor, " samples"]


@dataclass(frozen=True)
class Rule:
    """How samples are drawn from candidates, and what they count in the loss.

    A candidate is drawn with the probability π = n (λ/M + (1 - λ) s/Σs), at most 1, where s is a
    power of its score.

    Args:
        score: "coarse" is the error against a cheap solution. "average" is the distance between
            the predictions by the weights and by their moving average. "true" is the error against
            the solution, which is not known before the sample is solved. None: no draws.
        power: Power of the score.
        uniform: Share λ of the probability that all candidates have in common.
        weighted: Whether a sample has the weight n/(M π), so that the loss is an unbiased estimate
            of its mean over the candidates. If not, all weights are 1.
        loss_power: Power of the relative error in the loss.
        longer: Factor of the numbers of steps and of solves; at most `candidates`.
        candidates: Number of candidates for each drawn sample.
    """

    score: Literal["coarse", "average", "true"] | None = None
    power: float = 1.0
    uniform: float = 0.5
    weighted: bool = False
    loss_power: int = 1
    longer: int = 1
    candidates: int = CANDIDATES


RULES: Mapping[str, Rule] = {
    "uniform": Rule(),
    "uniform, three times the steps": Rule(longer=3),
    "weighted": Rule("coarse", weighted=True),
    "weighted, by the average": Rule("average", weighted=True),
    "weighted, by the true error": Rule("true", weighted=True),
    "uniform, squared loss": Rule(loss_power=2),
    "weighted, squared loss": Rule("coarse", uniform=UNIFORM, weighted=True, loss_power=2),
    "tail": Rule("coarse", POWER, UNIFORM),
    "tail, 4 candidates": Rule("coarse", POWER, UNIFORM, candidates=4),
    "tail, squares of errors": Rule("coarse", 2, UNIFORM),
    "tail, squares of errors, 4 candidates": Rule("coarse", 2, UNIFORM, candidates=4),
    "tail, by the true error": Rule("true", POWER, UNIFORM),
}


@dataclass(frozen=True)
class Study:
    """A recipe with its cheap version, and the training of an operator on its stream.

    Args:
        fine: Recipe of the samples.
        coarse: Overrides that make its solutions cheap.
        width, modes: Size of the FNO.
        steps, batch: Number of steps, and of samples in each.
        round: Number of steps between two draws.
        test: Number of test samples.
        lr: Peak learning rate of the 1cycle.
    """

    fine: Recipe
    coarse: Mapping[str, Any]
    width: int
    modes: int
    steps: int
    batch: int = 16
    round: int = 40
    test: int = 2048
    lr: float = 3e-3

    @property
    def count(self) -> int:
        """Number n of samples that are drawn in a round."""
        return self.round * self.batch

    @property
    def rounds(self) -> int:
        return self.steps // self.round

    @cached_property
    def x(self) -> Tensor:
        """Points of the samples."""
        return torch.from_numpy(self.fine.problem.domain.points.astype(np.float32))


def _burgers() -> Study:
    recipe = load_recipe("burgers-quick").with_overrides({"problem.resolution": 128})
    coarse = {"solver.resolution": 256, "initial.modes": 127}
    return Study(recipe, coarse, width=24, modes=16, steps=1600)


def _darcy() -> Study:
    coarse = {"solver.refinement": 1}
    return Study(load_recipe("darcy-quick"), coarse, width=12, modes=8, steps=320, test=1024)


STUDIES: Mapping[str, Callable[[], Study]] = {"burgers": _burgers, "darcy": _darcy}


def solved(recipe: Recipe, numbers: range) -> tuple[Pair, float]:
    """Inputs and targets of samples, and the processor seconds for each."""
    start = time.process_time()
    values = recipe.problem.compute(recipe.seed, numbers)
    seconds = (time.process_time() - start) / len(numbers)
    a, u = (torch.from_numpy(np.ascontiguousarray(values[name]))[..., None] for name in "au")
    return (a, u), seconds


class Candidates:
    """Candidates of all rounds of a seed, with their solutions and cheap solutions.

    Args:
        factor: Number of candidates for each drawn sample.
    """

    def __init__(self, study: Study, seed: int, factor: int) -> None:
        start, count = first_number(seed, study.fine.problem), factor * study.count
        blocks = [range(start + k * count, start + (k + 1) * count) for k in range(study.rounds)]
        coarse = study.fine.with_overrides(dict(study.coarse))
        fine = [solved(study.fine, numbers) for numbers in blocks]
        cheap = [solved(coarse, numbers) for numbers in blocks]
        self.fine, self.coarse = ([pair for pair, _ in every] for every in (fine, cheap))
        self.seconds, self.coarse_seconds = (
            float(np.mean([seconds for _, seconds in every])) for every in (fine, cheap)
        )


class Training:
    """A training by a rule.

    Attributes:
        scoring, stepping: Processor seconds of predictions for scores, and of the steps.
        weights: Weights of the drawn samples.
        correlations: Rank correlation of scores and true errors in each round.
    """

    def __init__(self, study: Study, rule: Rule, seed: int, candidates: Candidates) -> None:
        torch.manual_seed(seed)
        self.study, self.rule, self.candidates = study, rule, candidates
        self.random = torch.Generator().manual_seed(seed)
        a, u = candidates.fine[0]
        operator = FNO(dim=study.x.shape[-1], width=study.width, modes=study.modes)
        self.predictor = Predictor(operator, Normalizer.of(a), Normalizer.of(u))
        self.average = deepcopy(self.predictor)
        self.scoring, self.stepping = 0.0, 0.0
        self.weights, self.correlations = [torch.ones(1)], list[float]()

    def __call__(self) -> Training:
        study, schedule = self.study, OneCycle(warmup=0.1, div=25.0)
        optimizer = torch.optim.Adam(self.predictor.parameters(), lr=study.lr)
        steps, step = study.steps * self.rule.longer, 0
        for k in range(study.rounds):
            rows, weights = self._drawn(k)
            (a, u), start = self.candidates.fine[k], time.process_time()
            parts = zip(rows.split(study.batch), weights.split(study.batch), strict=True)
            for part, weight in parts:
                for group in optimizer.param_groups:
                    group["lr"] = schedule(study.lr, step, steps, 1)
                error = relative_l2(self.predictor(a[part], study.x), u[part])
                optimizer.zero_grad()
                (weight * error**self.rule.loss_power).mean().backward()
                optimizer.step()
                step += 1
                self._update_average()
            self.stepping += time.process_time() - start
        return self

    @torch.no_grad()
    def _update_average(self) -> None:
        if self.rule.score == "average":
            pairs = zip(self.average.parameters(), self.predictor.parameters(), strict=True)
            for old, new in pairs:
                old.lerp_(new, 1 - _DECAY)

    def _drawn(self, k: int) -> tuple[Tensor, Tensor]:
        """Indices of the candidates of a round that are drawn, and their weights in the loss."""
        count, rule = self.study.count, self.rule
        if rule.score is None or k == 0:  # initial weights predict nothing
            return torch.arange(count * rule.longer), torch.ones(count * rule.longer)
        start = time.process_time()
        scores = self._scores(k)
        self.scoring += time.process_time() - start
        ranks: Any = spearmanr(scores, self._errors(*self.candidates.fine[k]))
        self.correlations.append(float(ranks.statistic))
        probabilities = inclusion(scores**rule.power, count, rule.uniform)
        rows = systematic(probabilities, self.random)
        weights = torch.ones(count)
        if rule.weighted:
            weights = (count / (len(scores) * probabilities[rows])).float()
            self.weights.append(weights)
        return rows, weights

    def _scores(self, k: int) -> Errors:
        if self.rule.score == "average":
            a, _ = self.candidates.coarse[k]
            return self._errors(a, self._predictions(self.average, a))
        pairs = self.candidates.coarse if self.rule.score == "coarse" else self.candidates.fine
        return self._errors(*pairs[k])

    def _errors(self, a: Tensor, u: Tensor) -> Errors:
        return relative_l2(self._predictions(self.predictor, a), u).double()

    @torch.no_grad()
    def _predictions(self, predictor: Predictor, a: Tensor) -> Tensor:
        size = max(1, _AT_ONCE // a[0].numel())
        return torch.cat([predictor(part, self.study.x) for part in a.split(size)])

    def figures(self, test: Pair) -> dict[str, float]:
        """Errors of the test samples, and processor seconds of the parts of the training."""
        errors, study = self._errors(*test).numpy(), self.study
        solves, scored = study.steps * study.batch * self.rule.longer, 0
        if self.rule.score is not None:
            scored = self.rule.candidates * study.count * (study.rounds - 1)
        return {
            "mean": float(errors.mean()),
            "median": float(np.median(errors)),
            "p99": float(np.quantile(errors, 0.99)),
            "worst": float(errors.max()),
            "steps, s": self.stepping,
            "solves, s": self.candidates.seconds * solves,
            "scoring, s": self.scoring + self.candidates.coarse_seconds * scored,
            "largest weight": float(torch.cat(self.weights).max()),
            "rank correlation": float(np.mean(self.correlations or [0.0])),
        }


def measured(study: Study, rules: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Figures of each rule and seed."""
    test, _ = solved(study.fine, range(study.test))
    for seed in seeds:
        of_factor = dict[int, Candidates]()
        for name in sorted(rules, key=lambda name: RULES[name].candidates):
            factor = RULES[name].candidates
            if factor not in of_factor:
                of_factor = {factor: Candidates(study, seed, factor)}
            figures = Training(study, RULES[name], seed, of_factor[factor])().figures(test)
            yield {"rule": name, "seed": seed, "candidates": factor} | {
                k: rounded(v) for k, v in figures.items()
            }


def table(name: str) -> Iterator[str]:
    """Means over the seeds in the history, in Markdown; errors also relative to "uniform"."""
    last = dict[tuple[str, int], dict[str, Any]]()
    for text in (RESULTS / "tail.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(text)
        if entry["settings"]["study"] == name:
            last |= {(line["rule"], line["seed"]): line for line in entry["figures"]["lines"]}
    if not last:
        raise SystemExit(f"no run of {name} is recorded: run the study without --table first")
    columns = [c for c in next(iter(last.values())) if c not in ("rule", "seed", "candidates")]
    yield f"| rule | seeds | {' | '.join(columns)} | mean / uniform | p99 / uniform |"
    yield "|---" * (len(columns) + 4) + "|"
    for rule in RULES:
        seeds = [seed for named, seed in last if named == rule and ("uniform", seed) in last]
        if not seeds:
            continue
        values = {c: [last[rule, seed][c] for seed in seeds] for c in columns}
        base = {c: [last["uniform", seed][c] for seed in seeds] for c in ("mean", "p99")}
        cells = [f"{np.mean(values[c]):.3g}" for c in columns]
        cells += [f"{np.mean(values[c]) / np.mean(base[c]):.2f}" for c in base]
        yield f"| {rule} | {len(seeds)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tail", description=__doc__)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=[*RULES], metavar="RULE")
    parser.add_argument("--table", action="store_true", help="print the table of earlier runs")
    words = parser.parse_args()
    if words.table:
        print("\n".join(table(words.study)))
        return
    torch.set_num_threads(1)
    lines = list[dict[str, Any]]()
    for line in measured(STUDIES[words.study](), words.rules, words.seeds):
        print(line, file=sys.stderr, flush=True)
        lines.append(line)
    print(append(RESULTS, "tail", {"lines": lines}, study=words.study))


if __name__ == "__main__":
    main()
