"""Results of a noise study: errors of its methods on the same test samples, failures and tables."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from statistics import mean

import numpy as np

from operators.norms import defined, over_defined
from pipelines.reports.benchmark_report import without_empty
from pipelines.reports.document import Table, plus_minus, significant
from pipelines.runs.comparison import Difference, mean_interval
from pipelines.studies.inversions import CONSTANT, Cell
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution, Row, mean_and_spread
from pipelines.studies.scores import BAND_MEASURES, MEASURES, csv_text

Rows = Mapping[Cell, Sequence[Sequence[Row]]]  # of a method: at each test level, one for each seed

CALIBRATION = (
    "coverage", "width", "points", "points_width", "points_crps", "brier", "set_coverage",
    "set_size",
)  # fmt: skip
UNEXPLAINED = 3.0  # misfit from which on an inversion has failed; the noise explains 1
_ROUNDING = 1e-6  # relative; an interval below it is rounding


@dataclass(frozen=True)
class Group:
    """Methods of a study and the number of test samples, the first ones, on which all are tested.

    Args:
        whole: Whether these are all test samples.
    """

    methods: Sequence[Cell]
    samples: int
    whole: bool


@dataclass(frozen=True)
class Results:
    """The rows of a finished noise study. Test levels are given by their positions.

    Args:
        rows: Rows on the test samples of the experiment.
        under: Rows under each condition, by its name. Methods are those of `rows`.
    """

    study: NoiseStudy
    rows: Rows
    under: Mapping[str, Rows] = field(default_factory=dict)

    @property
    def primary(self) -> str:
        """Name of the measure that ranks methods: the misclassified area of two phases, else the
        L² error. "Error" means this measure."""
        return "errors" if self.study.values is None else "misclassified"

    @cached_property
    def groups(self) -> list[Group]:
        """Methods tested on all samples; if some are not, also all methods on shared samples."""
        every, count = list(self.rows), len(self.study.truth)
        whole = [method for method in every if self.samples(method) == count]
        fewest = min(map(self.samples, every))
        shared = [Group(every, fewest, False)]
        if whole == [Cell(CONSTANT)]:
            return shared
        return [Group(whole, count, True), *(shared if fewest < count else [])]

    def samples(self, method: Cell) -> int:
        """Number of test samples on which a method is tested."""
        return min(len(row.errors) for seeds in self.rows[method] for row in seeds)

    def errors(self, method: Cell, at: int, samples: int | None = None) -> np.ndarray:
        """Errors of the first test samples at a level, averaged over the seeds."""
        each = [scores_of(row, self.primary) for row in self.rows[method][at]]
        return np.mean([scores[:samples] for scores in each], axis=0)

    def mean(self, method: Cell, at: int, samples: int | None = None) -> float:
        """Mean error of the first test samples at a level."""
        return over_defined(mean, self.errors(method, at, samples).tolist())

    def half(self, method: Cell, at: int, samples: int | None = None) -> float:
        """Half the width of the 95 % confidence interval of `mean` over the samples. 0 if there is
        none: for a single sample, infinite errors, or errors that differ by rounding alone."""
        middle, half = mean_interval(defined(self.errors(method, at, samples).tolist()))
        return half if math.isfinite(half) and half > _ROUNDING * middle else 0.0

    def printed(self, method: Cell, at: int, samples: int | None = None) -> str:
        """Mean error as text, with half of its interval."""
        words, half = significant(self.mean(method, at, samples)), self.half(method, at, samples)
        return plus_minus(words, half) if half else words

    def best(self, group: Group, at: int) -> Cell:
        """The method of a group with the smallest mean error at a level. Methods that failed count
        only if all did."""
        sound = [m for m in group.methods if not self.failure(m, at, group.samples)]
        return min(sound or group.methods, key=lambda m: self.mean(m, at, group.samples))

    def failure(self, method: Cell, at: int, samples: int | None = None) -> str:
        """Why a method failed at a level on the first samples; empty if it did not.

        A method fails if its mean error is larger than that of the constant on the same samples. An
        inversion also fails if the misfit of its reconstructions is `UNEXPLAINED` or larger.
        """
        if method.method == CONSTANT:
            return ""
        samples = samples or self.samples(method)
        error, constant = (self.mean(m, at, samples) for m in (method, Cell(CONSTANT)))
        if not error <= constant:
            return f"error {significant(error)} > {significant(constant)} of the constant"
        misfit = mean_and_spread(self.rows[method][at], "misfit")[0]
        inverted = isinstance(method.method, str) or method.corrected
        return f"misfit {misfit:.3g}" if inverted and misfit >= UNEXPLAINED else ""

    def converged(self, method: Cell, at: int) -> str:
        """Number of samples on which an inversion converged, as text; empty for other methods."""
        count = self.rows[method][at][0].converged
        return "" if count is None else f"{count} of {self.samples(method)}"

    def headline(self, where: str, group: Group, at: int) -> tuple[str, str]:
        """A sentence that names the best method of a group at a level, and its mean error."""
        best, count = self.best(group, at), len(self.study.truth)
        name, converged = self.study.label(best), self.converged(best, at)
        if converged and self.rows[best][at][0].converged != self.samples(best):
            name += f", converged on {converged}"
        among = "" if group.whole else f", on the first {group.samples} of {count} samples"
        error = "error" if self.primary == "errors" else MEASURES[self.primary].column
        return (
            f"smallest mean {error} at {where} ({name}){among}",
            self.printed(best, at, group.samples),
        )

    def weight(self, method: Cell, at: int) -> str:
        """The weight of a classical method as text, with its place if it is an end of the weights
        from which it was chosen; empty for other methods."""
        weight = self.rows[method][at][0].weight
        if weight is None or not isinstance(method.method, str):
            return ""
        weights = self.study.inversions.methods[method.method].weights
        ends = {min(weights): "smallest", max(weights): "largest"}
        place = f" ({ends[weight]})" if weight in ends and len(weights) > 1 else ""
        return f"{weight:g}{place}"

    @property
    def level(self) -> str:
        """Header of a column of levels."""
        return f"level, {self.study.noise(self.study.test_levels[0]).build().unit}"

    # tables

    def error_table(self, group: Group) -> Table:
        """Errors of the methods of a group, by level and error, and paired differences from the
        smallest mean error at the level."""
        several = self.study.seeds > 1
        others = [name for name in ("crps", "errors") if name != self.primary]
        others = [name for name in others if name in self.measured]
        lines = list[tuple[str, ...]]()
        for at, level in enumerate(self.study.test_levels):
            best = self.best(group, at)
            ordered = sorted(group.methods, key=lambda m, at=at: self.mean(m, at, group.samples))
            for method in ordered:
                words = {
                    name: self._mean_and_spread(method, at, name, group.samples)
                    for name in (self.primary, *others)
                }
                lines.append(
                    (
                        self.study.label(method), f"{level:g}", str(group.samples),
                        self.printed(method, at, group.samples),
                        self._difference(method, best, at, group.samples),
                        *(words[name][0] for name in others),
                        words[self.primary][1] if several else "",
                        self.converged(method, at),
                        "yes" if self.failure(method, at, group.samples) else "",
                    )
                )  # fmt: skip
        header = (
            "method", self.level, "n", MEASURES[self.primary].column,
            "difference from the smallest", *(MEASURES[name].column for name in others), "seeds",
            "converged", "failed",
        )  # fmt: skip
        return without_empty(lines, header, f"n = {group.samples}")

    def _mean_and_spread(self, method: Cell, at: int, name: str, samples: int) -> tuple[str, str]:
        """Mean of a measure over the first samples and all seeds, and its standard deviation over
        the seeds, as text."""
        each = [scores_of(row, name)[:samples] for row in self.rows[method][at]]
        middle, spread = mean_and_spread([Row(errors=list(scores)) for scores in each])
        words = significant(middle) if math.isfinite(middle) else ""
        return words, significant(spread) if spread else ""

    def _difference(self, method: Cell, best: Cell, at: int, samples: int) -> str:
        """Mean difference from the errors of the best method on the same samples, as text."""
        if method == best:
            return "smallest"
        errors = [self.errors(one, at, samples).tolist() for one in (method, best)]
        pair = Difference.of(*errors)
        if not math.isfinite(pair.mean):
            return ""
        words = significant(pair.mean)
        return plus_minus(words, pair.half) if 0 < pair.half < math.inf else words

    def measure_table(self) -> Table:
        """Measures of no other table, averaged over the samples and seeds of each row."""
        shown = ("errors", "crps", self.primary, *CALIBRATION, *BAND_MEASURES)
        names = [name for name in self.measured if MEASURES[name].column and name not in shown]
        return self._measures(names, lambda condition, method, rows: not condition)

    def calibration_table(self) -> Table:
        """Measures of the uncertainty that methods state, of those that state any."""
        names = [name for name in CALIBRATION if name in self.measured]
        stating = [
            method
            for method, levels in self.rows.items()
            if any(name in row.scores for name in names for seeds in levels for row in seeds)
        ]
        return self._measures(
            ["crps", *names] if names else [], lambda c, method, rows: not c and method in stating
        )

    def band_table(self) -> Table:
        """What conformal bands hold and their width, of the methods that have some."""
        table = self._measures(BAND_MEASURES, lambda c, m, rows: BAND_MEASURES[0] in rows[0].scores)
        return replace(table, name="conformal bands")

    def _measures(
        self, names: Sequence[str], shown: Callable[[str, Cell, Sequence[Row]], bool]
    ) -> Table:
        """Means of measures of the tests (condition, method, rows) that are shown."""
        lines = [
            (
                self.study.label(method), f"{level:g}", condition, str(self.samples(method)),
                *("" if math.isnan(value) else significant(value) for value in
                  (mean_and_spread(seeds, name)[0] for name in names)),
            )
            for condition, method, level, seeds in self._all_tests()
            if shown(condition, method, seeds)
        ]  # fmt: skip
        titles = (MEASURES[name].column or MEASURES[name].title for name in names)
        return without_empty(lines, ("method", self.level, "condition", "n", *titles))

    def cost_table(self, how: Execution) -> Table:
        """Weights and costs of classical methods and of corrected models."""
        lines = list[tuple[str, ...]]()
        for method, level, (first, *_) in self._tests():
            if first.weight is None and not method.corrected:
                continue
            paid = ""
            if method.corrected:
                number = self.study.pays_after(replace(method, at=level), how)
                paid = f"{number:,.0f}" if math.isfinite(number) else "never"
            at = self.study.test_levels.index(level)
            lines.append(
                (
                    self.study.label(method), f"{level:g}", str(self.samples(method)),
                    self.weight(method, at), f"{first.inference_seconds:.2g}",
                    f"{first.solves:.0f}", f"{first.iterations:.0f}", paid,
                )
            )  # fmt: skip
        header = (
            "method", self.level, "n", "weight", "seconds", "solves", "steps", "pays after",
        )  # fmt: skip
        return without_empty(lines, header)

    def failure_table(self) -> Table | None:
        """The methods that failed, with their weights; None if none did."""
        lines = [
            (self.study.label(method), f"{level:g}", str(self.samples(method)), reason,
             self.weight(method, at))
            for at, level in enumerate(self.study.test_levels)
            for method in self.rows
            if (reason := self.failure(method, at))
        ]  # fmt: skip
        if not lines:
            return None
        table = without_empty(lines, ("method", self.level, "n", "failed", "weight"), "failed")
        return replace(table, words=True)

    def robustness_table(self, measure: str) -> Table:
        """Means of a measure under each condition, and their ratios to the mean of the same method
        and level on the test samples of the experiment."""
        lines = list[tuple[str, ...]]()
        for method, level, seeds in self._tests():
            at, usual = self.study.test_levels.index(level), mean_and_spread(seeds, measure)[0]
            words = list[str]()
            for rows in self.under.values():
                here = mean_and_spread(rows[method][at], measure)[0]
                ratio = here / usual if usual > 0 else math.nan
                times = f" ({ratio:.3g} times)" if math.isfinite(ratio) else ""
                words.append(significant(here) + times if math.isfinite(here) else "")
            told, label = self.study.told(method), self.study.label(method)
            lines.append((label, f"{level:g}", told, significant(usual), *words))
        header = ("method", self.level, "told", "experiment", *self.under)
        return Table(lines, header, name=MEASURES[measure].column)

    @cached_property
    def measured(self) -> list[str]:
        """Names of the measures that a row has."""
        every = [seeds for levels in self.rows.values() for seeds in levels]
        return [
            name
            for name in MEASURES
            if any(math.isfinite(mean_and_spread(seeds, name)[0]) for seeds in every)
        ]

    def _tests(self) -> Iterator[tuple[Cell, float, Sequence[Row]]]:
        for method, levels in self.rows.items():
            for level, seeds in zip(self.study.test_levels, levels, strict=True):
                yield method, level, seeds

    def _all_tests(self) -> Iterator[tuple[str, Cell, float, Sequence[Row]]]:
        for condition, rows in {"": self.rows, **self.under}.items():
            for test in replace(self, rows=rows)._tests():
                yield condition, *test

    @property
    def meanings(self) -> list[str]:
        """Paragraphs that explain the measures; measures without a column share one."""
        measures = [MEASURES[name] for name in self.measured if name != self.primary]
        others = " ".join(f"{of.title}: {of.meaning}" for of in measures if not of.column)
        return [
            *(f"{of.column}: {of.title}. {of.meaning}" for of in measures if of.column),
            "measures.csv has all measures, with deviations over the seeds; samples.csv has those "
            f"of each sample. {others}".rstrip(),
        ]

    @property
    def csv(self) -> str:
        """Text of measures.csv: each measure of each method at each test level and under each
        condition, with the number of samples and the standard deviation over the seeds."""
        lines = [["method", "level", "condition", "measure", "mean", "deviation over seeds", "n"]]
        for measure in MEASURES:
            for condition, method, level, seeds in self._all_tests():
                middle, spread = mean_and_spread(seeds, measure)
                if math.isfinite(middle):
                    count = min(
                        len(row.errors if measure == "errors" else row.scores[measure])
                        for row in seeds
                    )
                    lines.append(
                        [
                            self.study.label(method), f"{level:g}", condition, measure,
                            f"{middle:.6g}", f"{spread:.6g}", str(count),
                        ]
                    )  # fmt: skip
        return csv_text(lines)

    @property
    def sample_csv(self) -> str:
        """Text of samples.csv: all measures of each test sample, for each method, level, condition
        and seed. Samples have the numbers of the store, also those of a condition in their place.
        """
        numbers = self.study.source.samples("test", noise=None).ids.tolist()
        lines = [["method", "level", "condition", "seed", "sample", *self.measured]]
        for condition, method, level, seeds in self._all_tests():
            for seed, row in enumerate(seeds):
                scores = {"errors": row.errors, **row.scores}
                columns = [scores.get(name, []) for name in self.measured]
                for number, values in zip(numbers, zip_longest(*columns), strict=False):
                    words = ["" if value is None else f"{value:.6g}" for value in values]
                    label = self.study.label(method)
                    lines.append([label, f"{level:g}", condition, str(seed), str(number), *words])
        return csv_text(lines)


def scores_of(row: Row, measure: str) -> Sequence[float]:
    """The scores of a row by a measure, one for each sample; none if the row has no such."""
    return row.errors if measure == "errors" else row.scores.get(measure, [])
