"""Scores of answers to a test set, paired intervals of their differences, and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]
from jaxtyping import Bool, Float

from pdegen.files import write
from pdegen.inverse.classical import averages
from pdegen.schema import SchemaError, near
from pipelines.config.experiment import CALIBRATING
from pipelines.config.shipped import check_slugs, slug
from pipelines.runs.reproduction import toml
from pipelines.studies.answers import (
    METHOD,
    Answers,
    ClassicalAnswers,
    MethodFacts,
    OperatorAnswers,
    answer_file,
    encoded,
    read_answers,
    read_method,
)
from pipelines.studies.inversions import CONSTANT, TUNED_ON
from pipelines.studies.scores import (
    MEASURES,
    ConformalBands,
    Reconstructed,
    Stated,
    csv_text,
    measured,
)
from pipelines.studies.testset import DATA, VALIDATION, TestSetFolder

PRIMARY = ("misclassified", "crps")
_DRAWS = 10_000  # bootstrap samples
_SHUFFLED = 0.7  # of the error: so much better is the assignment to other samples


@dataclass(frozen=True)
class AnswerFolder:
    """A folder of answers, as one seed of a method."""

    folder: Path
    method: MethodFacts
    conditions: Sequence[str] | None = None  # those that it answers; by default those of its files
    source: str = ""  # run or classical method that makes the answers; empty for those of others

    def file(self, condition: str, part: str = DATA) -> Path | None:
        """The file with the answers to a condition; None if there is none."""
        if self.conditions is not None and condition not in self.conditions:
            return None
        return answer_file(self.own(condition, part).parent, condition)

    def own(self, condition: str, part: str) -> Path:
        """The file of answers that are made here."""
        return self.folder / ("" if part == DATA else part) / f"{condition}.npz"


def scored(
    answers: Answers,
    upper: Bool[np.ndarray, "n m m"],
    phases: tuple[float, float],
    told: bool = True,
    bands: ConformalBands | None = None,
) -> dict[str, list[float]]:
    """All measures of answers to samples whose upper phase is `upper`, a number for each sample.

    Args:
        phases: The two values of the coefficient that methods are told.
        told: Whether these are its values. If not, reconstructions count as the nearer of the two.
        bands: Conformal bands of the method.
    """
    if not told:
        answers = replace(answers, a=np.where(answers.a > sum(phases) / 2, phases[1], phases[0]))
    stated = replace(on_truth(answers, upper, phases), bands=bands)
    return measured(Reconstructed(stated.a, stated.truth, phases, stated=stated))


def on_truth(
    answers: Answers, upper: Bool[np.ndarray, "n m m"], phases: tuple[float, float]
) -> Stated:
    """The answers beside the truth. Reconstructions and probabilities on other cells are averaged
    exactly onto its cells."""
    (low, high), n, p = phases, upper.shape[-1], answers.probability
    truth, p = low + (high - low) * upper.astype(np.float64), None if p is None else _onto(p, n)
    return Stated(truth, _onto(answers.a, n), p, draws=answers.draws)


def _onto(values: Float[np.ndarray, "*batch m m"], n: int) -> Float[np.ndarray, "*batch n n"]:
    if values.shape[-1] == n:
        return values
    to = _averages(values.shape[-1], n)
    return to @ values @ to.T


_averages = lru_cache(averages)


def shuffled(
    answers: Answers, upper: Bool[np.ndarray, "n m m"], phases: tuple[float, float]
) -> str:
    """A sentence if the answers fit the truths of other samples much better; empty if not."""
    n, middle = upper.shape[-1], sum(phases) / 2
    found = (_onto(answers.a, n) > middle).reshape(len(upper), -1).astype(np.float32)
    true = upper.reshape(len(upper), -1).astype(np.float32)
    area = (found.sum(1)[:, None] + true.sum(1) - 2 * found @ true.T) / true.shape[1]
    rows, best = scipy.optimize.linear_sum_assignment(area)
    assigned, own = float(area[rows, best].mean()), float(np.trace(area)) / len(area)
    if assigned >= _SHUFFLED * own or not (best != rows).any():
        return ""
    row = int(rows[best != rows][0])
    return (
        f"answers fit other samples: row {row} that of sample {best[row]}, and so on, with an area "
        f"of {assigned:.3g} in place of {own:.3g}: are the samples shuffled?"
    )


# The scores of all methods.


Scores = Mapping[str, Float[np.ndarray, "seeds samples"]]  # by measure


@dataclass(frozen=True)
class Leaderboard:
    """Scores of methods on a test set.

    Args:
        scores: Scores of each method and condition. Conditions that a method does not answer are
            absent.
        methods: The descriptions of each method, one for each folder.
        notes: Sentences about answers that may be wrong.
    """

    testset: TestSetFolder
    scores: Mapping[tuple[str, str], Scores]
    methods: Mapping[str, Sequence[MethodFacts]]
    notes: Sequence[str] = ()

    @property
    def conditions(self) -> list[str]:
        """The conditions that some method answers, in the order of the set."""
        answered = {condition for _, condition in self.scores}
        return [name for name in self.testset.declared.conditions if name in answered]

    @property
    def core(self) -> list[str]:
        return [name for name in self.testset.declared.core if name in self.conditions]

    def mean(self, method: str, condition: str, measure: str) -> float:
        """Mean over seeds and samples; NaN if there is none."""
        scores = self.scores.get((method, condition), {})
        return float(np.mean(scores[measure])) if measure in scores else float("nan")

    def difference(
        self, method: str, other: str, condition: str, measure: str
    ) -> tuple[float, float, float]:
        """Mean paired difference, method minus other, with the ends of its 95 % interval."""
        of = [self.scores[name, condition][measure] for name in (method, other)]
        return paired_interval(*of)

    def ranked(self, condition: str, measure: str) -> dict[str, int]:
        """Rank of each method with this measure. A method whose paired interval to the first method
        of a rank contains 0 shares that rank."""
        means = {
            method: self.mean(method, condition, measure)
            for method in self.methods
            if measure in self.scores.get((method, condition), {})
        }
        ordered, ranks = sorted(means, key=means.__getitem__), dict[str, int]()
        for place, method in enumerate(ordered, 1):
            leader = next((name for name in ranks if ranks[name] == max(ranks.values())), None)
            if leader is not None:
                _, low, high = self.difference(method, leader, condition, measure)
                if low <= 0 <= high:
                    ranks[method] = ranks[leader]
                    continue
            ranks[method] = place
        return ranks

    @cached_property
    def mean_ranks(self) -> dict[str, dict[str, float]]:
        """Mean rank over the core conditions, by primary measure and method. Methods that leave
        out a core condition that others answer have none."""
        result = dict[str, dict[str, float]]()
        for measure in PRIMARY:
            each = [self.ranked(condition, measure) for condition in self.core]
            result[measure] = {
                method: float(np.mean([ranks[method] for ranks in each]))
                for method in self.methods
                if each and all(method in ranks for ranks in each)
            }
        return result

    def counted(self, condition: str) -> int:
        """Number of samples of a condition that are scored."""
        return next(
            v["errors"].shape[1] for (_, name), v in self.scores.items() if name == condition
        )

    @property
    def csv(self) -> str:
        """One line for each method, seed, condition and sample, with all measures."""
        lines = [["method", "seed", "condition", "sample", *MEASURES]]
        for (method, condition), scores in self.scores.items():
            numbers = self.testset.data(condition).number
            for k, seed in enumerate(scores["seed"][:, 0]):
                for row in range(scores["errors"].shape[1]):
                    values = (scores.get(name) for name in MEASURES)
                    words = ["" if v is None else f"{v[k, row]:.6g}" for v in values]
                    lines.append([method, str(seed), condition, str(numbers[row]), *words])
        return csv_text(lines)

    @property
    def differences_csv(self) -> str:
        """Mean paired differences from the first method, with the ends of their 95 % intervals."""
        lines = [["method", "minus", "condition", "measure", "difference", "low", "high"]]
        first = next(iter(self.methods))
        for method, condition in self.scores:
            if method == first or (first, condition) not in self.scores:
                continue
            for measure in PRIMARY:
                words = [f"{v:.6g}" for v in self.difference(method, first, condition, measure)]
                lines.append([method, first, condition, measure, *words])
        return csv_text(lines)


def paired_interval(
    scores: Float[np.ndarray, "seeds samples"], other: Float[np.ndarray, "seeds samples"]
) -> tuple[float, float, float]:
    """Mean difference of two methods on the same samples, and the ends of its 95 % interval.

    The interval is the percentile interval of bootstrap samples of the test samples, and of the
    seeds of methods with several. All pairs of methods have the same bootstrap samples.

    >>> found = paired_interval(np.array([[1.0, 2.0, 3.0]]), np.array([[0.0, 1.0, 2.0]]))
    >>> [round(value, 9) for value in found]
    [1.0, 1.0, 1.0]
    """
    means = [_resampled(values) for values in (scores, other)]
    low, high = np.percentile(means[0] - means[1], [2.5, 97.5]).tolist()
    return float(scores.mean() - other.mean()), low, high


def _resampled(scores: Float[np.ndarray, "seeds samples"]) -> Float[np.ndarray, " draws"]:
    """Means of bootstrap samples."""
    seeds, samples = scores.shape
    rng = np.random.default_rng([0, samples])
    counts = rng.multinomial(samples, np.full(samples, 1 / samples), _DRAWS)
    by_seed = counts @ scores.T / samples  # (draws, seeds)
    if seeds == 1:
        return by_seed[:, 0]
    rng = np.random.default_rng([1, seeds])
    weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), _DRAWS) / seeds
    mean = by_seed.mean(axis=1)
    # the variance of S values is S/(S - 1) times that of their bootstrap samples
    return mean + (seeds / (seeds - 1)) ** 0.5 * (np.sum(weights * by_seed, axis=1) - mean)


@dataclass(frozen=True)
class Scoring:
    """What methods are asked for.

    Args:
        conditions: Names of the conditions.
        samples: Number of first test samples of each condition; None for all.
        conformal: Whether the validation samples of each condition are asked for, too. They
            calibrate conformal bands.
    """

    testset: TestSetFolder
    conditions: Sequence[str]
    samples: int | None = None
    conformal: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return (DATA, VALIDATION) if self.conformal else (DATA,)

    def count(self, condition: str, part: str = DATA) -> int:
        """Number of samples of a part of a condition that are asked for."""
        every = len(self.testset.data(condition, part).number)
        return every if part == VALIDATION else min(self.samples or every, every)

    def read(self, path: Path, condition: str, part: str = DATA) -> Answers:
        """The answers in a file. Raises SchemaError if they are incomplete or not finite."""
        data, count = self.testset.data(condition, part), self.count(condition, part)
        return read_answers(path, data, count, self.testset.declared.phases)


def leaderboard(asked: Scoring, entries: Sequence[AnswerFolder]) -> Leaderboard:
    """Score the answers in folders. Raises SchemaError if they are incomplete or not finite."""
    testset, methods = asked.testset, dict[str, list[MethodFacts]]()
    scores, notes = dict[tuple[str, str], dict[str, np.ndarray]](), list[str]()
    phases = testset.declared.phases
    for entry in entries:
        methods.setdefault(entry.method.name, []).append(entry.method)
    for condition in asked.conditions:
        upper = testset.upper(condition)[: asked.count(condition)]
        told = testset.declared.told_phases(condition)
        by_method, seeds = dict[str, list[dict[str, list[float]]]](), dict[str, list[int]]()
        for entry in entries:
            path = entry.file(condition)
            if path is None:
                continue
            seeds.setdefault(entry.method.name, []).append(entry.method.seed)
            answers = asked.read(path, condition)
            if note := shuffled(answers, upper, phases):
                notes.append(f"{path}: {note}")
            bands, path = None, entry.file(condition, VALIDATION) if asked.conformal else None
            if path is not None:
                calibrating = asked.read(path, condition, VALIDATION)
                bands = ConformalBands.of(on_truth(calibrating, testset.validation, phases), phases)
            by_method.setdefault(entry.method.name, []).append(
                scored(answers, upper, phases, told, bands)
            )
            by_method[entry.method.name][-1] |= {
                name: value.tolist()
                for name in ("seconds", "solves")
                if (value := getattr(answers, name)) is not None
            }
        for name, each in by_method.items():
            shared = set.intersection(*({*of} for of in each))
            scores[name, condition] = {key: np.array([of[key] for of in each]) for key in shared}
            scores[name, condition]["seed"] = np.array(seeds[name])[:, None]
    return Leaderboard(testset, scores, methods, notes)


# Answers of shipped methods and of runs, which are made where they are missing.


Source = ClassicalAnswers | OperatorAnswers


def checked_entries(asked: Scoring, names: Sequence[str], folder: Path) -> list[AnswerFolder]:
    """Folders with the answers of methods, which `entries` completes. Nothing is written.

    A method is a folder of answers, the folder of a finished run, or the name of a classical
    method. Answers of runs and classical methods are in subfolders of `folder`.

    Raises:
        SchemaError: If a method is unknown, a folder is neither answers nor a run, answers are of
            another test set, incomplete or not finite, or validation samples are too few.
    """
    testset, least = asked.testset, 2 * max(CALIBRATING, TUNED_ON)  # weights have the first half
    if asked.conformal and (count := len(testset.validation)) < least:
        raise SchemaError(
            f"--conformal needs {least} validation samples, {testset.path} has {count}"
        )
    for condition, part in product(asked.conditions, asked.parts):
        _ = asked.count(condition, part), testset.upper(condition)  # raises if they are damaged
    result, classical = list[AnswerFolder](), ClassicalAnswers(testset, CONSTANT)
    for name in names:
        path = Path(name)
        if (path / METHOD).exists():
            result.append(AnswerFolder(path, method := read_method(path)))
            if method.name in classical.names and method.testset != testset.digest:
                raise SchemaError(
                    f"{path}/{METHOD}: {method.name!r} is a name of pdegen's: give another one"
                )
            _check_answers(asked, result[-1])
            continue
        if path.is_dir():
            source: Source = OperatorAnswers(testset, path)
        elif name in classical.names:
            source = ClassicalAnswers(testset, name)
        else:
            known = near(name, classical.names)
            raise SchemaError(f"{name!r} is no folder and no classical method: {known}")
        own = folder / slug(f"{source.described.name} {source.distinction}".strip())
        answered = [condition for condition in asked.conditions if source.offers(condition)]
        if not answered:
            raise SchemaError(f"{name} was trained on other sensors than those of the test set")
        result.append(AnswerFolder(own, source.described, answered, name))
    _check_names(result, asked.conditions)
    return result


def _check_answers(asked: Scoring, entry: AnswerFolder) -> None:
    """Raise SchemaError if answers of others are of another test set or do not fit it."""
    if entry.method.testset not in ("", asked.testset.digest):
        raise SchemaError(f"{entry.folder}/{METHOD} answers another test set: see its digest")
    if not any(entry.file(condition) for condition in asked.conditions):
        raise SchemaError(f"{entry.folder} answers no condition: files are NAME.npz")
    for condition, part in product(asked.conditions, asked.parts):
        if (path := entry.file(condition, part)) is not None:
            asked.read(path, condition, part)


def entries(
    asked: Scoring,
    checked: Sequence[AnswerFolder],
    folder: Path,
    workers: int = 1,
    progress: Callable[[str], None] = lambda line: None,
) -> list[AnswerFolder]:
    """Make the answers of runs and classical methods that are missing.

    The result has the folders of `checked_entries`. If a method has several seeds, it also has one
    for all of them together, see `together`.
    """
    missing = list[tuple[Path, str, Path, str, int, str]]()
    for entry in (entry for entry in checked if entry.source):
        facts = entry.method.model_dump(exclude_none=True)
        write(entry.folder / METHOD, f"{toml(facts)}\n".encode())
        source = _source(asked.testset.path, entry.source)
        for condition, part in product(entry.conditions or (), asked.parts):
            path, count = entry.own(condition, part), asked.count(condition, part)
            if not _holds(path, source, asked, condition, part):
                missing.append((asked.testset.path, entry.source, path, condition, count, part))
    for done, line in enumerate(_finished(missing, workers), 1):
        progress(f"{done}/{len(missing)} {line}")
    by_name = dict[str, list[AnswerFolder]]()
    for entry in checked:
        by_name.setdefault(entry.method.name, []).append(entry)
    pooled = [together(asked, each, folder) for each in by_name.values() if len(each) > 1]
    return [*checked, *(entry for entry in pooled if entry.conditions)]


def _check_names(entries: Sequence[AnswerFolder], chosen: Sequence[str]) -> None:
    """Raise SchemaError if two folders of a name and seed answer a condition, or if the names of
    methods with several seeds differ too little for their folders."""
    answered = set[tuple[str, int, str]]()
    for entry in entries:
        method = entry.method
        for condition in chosen:
            if condition not in (entry.conditions or ()) and entry.file(condition) is None:
                continue
            if (answer := (method.name, method.seed, condition)) in answered:
                raise SchemaError(
                    f"{entry.folder}: two folders of {method.name!r} with the seed {method.seed} "
                    f"answer {condition}: give them other names or seeds"
                )
            answered.add(answer)
    names = [entry.method.name for entry in entries]
    pooled = [pooled_name(name) for name in dict.fromkeys(names) if names.count(name) > 1]
    for name in (name for name in pooled if name in names):
        raise SchemaError(f"{name!r} is the name of several seeds here: give the method another")
    try:
        check_slugs(pooled, "methods")
    except ValueError as error:
        raise SchemaError(str(error)) from None


def pooled_name(name: str) -> str:
    """The name of all seeds of a method."""
    return f"{name}, all seeds together"


def together(asked: Scoring, seeds: Sequence[AnswerFolder], folder: Path) -> AnswerFolder:
    """Write the answers of all seeds of a method together, to the conditions with several seeds.

    The answer is the mean of those of the seeds, and so is the probability if all state one. The
    draws are those of the seeds if all have some. If neither is so, the answers of seeds without
    draws are draws, too (Lakshminarayanan et al. 2017).
    """
    first = seeds[0].method
    name, times = pooled_name(first.name), [e.method.training_seconds for e in seeds]
    time = None if None in times else sum(filter(None, times))
    facts = {"name": name, "pooled": len(seeds), "training_seconds": time}
    method = first.model_copy(update=facts)
    several = [c for c in asked.conditions if len([e for e in seeds if e.file(c)]) > 1]
    own = AnswerFolder(folder / slug(name), method, several)
    for condition, part in product(several, asked.parts):
        paths = [path for entry in seeds if (path := entry.file(condition, part)) is not None]
        data = asked.testset.data(condition, part)
        if len(paths) == len([entry for entry in seeds if entry.file(condition)]):
            pooled = pool([asked.read(path, condition, part) for path in paths])
            write(own.own(condition, part), encoded(pooled, data))
        else:
            own.own(condition, part).unlink(missing_ok=True)  # of other seeds
    if several:
        write(own.folder / METHOD, f"{toml(method.model_dump(exclude_none=True))}\n".encode())
    return own


def pool(each: Sequence[Answers]) -> Answers:
    """The answers of several seeds as those of one method, on the cells of the finest. All have the
    same number of draws, that of the seed with the fewest."""
    fields = [v for of in each for v in (of.a, of.probability, of.draws) if v is not None]
    finest = max(v.shape[-1] for v in fields)
    a = np.stack([_onto(of.a, finest) for of in each])
    seconds = [of.seconds for of in each if of.seconds is not None]
    total = np.sum(seconds, axis=0) if len(seconds) == len(each) else None
    stated = [_onto(of.probability, finest) for of in each if of.probability is not None]
    p = np.mean(stated, axis=0) if len(stated) == len(each) else None
    if p is not None and any(of.draws is None for of in each):
        return Answers(a.mean(axis=0), p, seconds=total)
    draws = [
        one if of.draws is None else _onto(of.draws, finest)
        for one, of in zip(a[:, None], each, strict=True)
    ]
    draws = [of_seed[: min(map(len, draws))] for of_seed in draws]
    return Answers(a.mean(axis=0), p, np.concatenate(draws), seconds=total)


def _holds(path: Path, source: Source, asked: Scoring, condition: str, part: str) -> bool:
    """Whether a file has the answers of a source to the samples that are asked for."""
    try:
        answers = asked.read(path, condition, part)
    except SchemaError:
        return False
    return answers.made_from == source.made_from(condition)


def _finished(jobs: Sequence[tuple[Path, str, Path, str, int, str]], workers: int) -> Iterator[str]:
    """Make answers in several processes. Each is written when it is finished."""
    if workers == 1 or len(jobs) < 2:
        yield from map(_answered, jobs)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield from pool.map(_answered, jobs)


@lru_cache(maxsize=8)
def _source(path: Path, name: str) -> Source:
    testset = TestSetFolder(path)
    if Path(name).is_dir():
        return OperatorAnswers(testset, Path(name))
    return ClassicalAnswers(testset, name)


def _answered(job: tuple[Path, str, Path, str, int, str]) -> str:
    """Make the answers of one method to one part of a condition."""
    path, name, file, condition, samples, part = job
    source = _source(path, name)
    answers = source.answer(condition, samples, part)
    answers = replace(answers, made_from=source.made_from(condition))
    write(file, encoded(answers, source.testset.data(condition, part)))
    return f"{name} on {condition}{', validation' * (part == VALIDATION)}"
