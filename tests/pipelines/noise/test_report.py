"""The report of a noise study compares methods on the same samples, marks failures, and defines the
noise."""

import csv
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from pdegen.sampling.noise import KINDS
from pipelines.reports.document import significant
from pipelines.reports.noise_pictures import Reconstructions
from pipelines.reports.noise_report import noise_section
from pipelines.reports.noise_table import UNEXPLAINED, Results
from pipelines.studies.inversions import CONSTANT, Cell
from pipelines.studies.runner import Execution, Row
from tests.pipelines.noise.conftest import CPU, a_study
from tests.pipelines.page import Page

HOW = Execution(CPU)
MODEL, TV, MEAN = Cell(0.1), Cell("total variation"), Cell(CONSTANT)


def results(rows, samples, levels=(0.1,), weights=(0.1, 0.3, 1.0), values=None):
    """Results with errors of each method at each level, from one seed."""
    method = SimpleNamespace(weights=weights)
    study = SimpleNamespace(
        truth=np.zeros((samples, 2)), test_levels=levels, seeds=1, values=values,
        noisiest=max(levels),
        label=lambda method: method.name,
        noise=lambda level: SimpleNamespace(build=lambda: KINDS["ensemble"](level)),
        inversions=SimpleNamespace(methods={"total variation": method}),
    )  # fmt: skip
    return Results(study, {method: [[row] for row in of] for method, of in rows.items()})


def test_methods_of_fewer_samples_are_apart_and_compared_on_their_samples():
    """On its own two samples the inversion has the larger error: 0.25 against 0.15, with 0.6 for
    the samples that it does not have."""
    rows = {
        MODEL: [Row(errors=[0.1, 0.2, 0.9, 0.3])],
        MEAN: [Row(errors=[0.8, 0.8, 0.95, 0.95])],
        TV: [Row(errors=[0.2, 0.3], weight=0.3)],
    }
    found = results(rows, samples=4)
    whole, few = found.groups
    assert (whole.methods, whole.samples) == ([MODEL, MEAN], 4)
    assert (few.methods, few.samples) == ([MODEL, MEAN, TV], 2)
    first, second = map(found.error_table, found.groups)
    column = first.header.index("n")
    assert {row[column] for row in first.rows} == {"4"}
    assert {row[column] for row in second.rows} == {"2"}
    means = [row[second.header.index("L² error")].split(" ±")[0] for row in second.rows]
    assert [row[0] for row in second.rows] == ["trained at 0.1", "total variation", "constant"]
    assert means == ["0.150", "0.250", "0.800"]
    assert results({k: v for k, v in rows.items() if k != TV}, 4).groups == [whole]


def test_the_median_and_the_worst_sample_are_those_of_the_best_method_where_noise_is_largest():
    """The errors of the method that is best at the higher level alone choose the samples."""
    low, high = [0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.9, 0.3, 0.6, 0.4]
    rows = {
        MODEL: [Row(errors=low), Row(errors=[1.0, 0.6, 0.7, 0.8, 0.9])],
        TV: [Row(errors=[0.9] * 5), Row(errors=high)],
        MEAN: [Row(errors=[2.0] * 5)] * 2,
    }
    found = Reconstructions(results(rows, 5, levels=(0.1, 0.4)), CPU)
    assert found._ordered == (TV.name, [2, 4, 0, 3, 1])
    assert found._row == 0
    found.study.noisiest = 0.1  # as levels in decibels would have it
    loud = Reconstructions(found.results, CPU)
    assert loud._ordered == (MODEL.name, [0, 1, 2, 3, 4])


def test_the_interval_of_a_mean_is_students():
    errors = [0.1, 0.12, 0.15]
    half = np.ptp(stats.ttest_1samp(errors, 0).confidence_interval()) / 2
    found = results({MEAN: [Row(errors=[*errors, np.nan])]}, 4)
    assert found.half(MEAN, 0) == pytest.approx(half)
    assert found.printed(MEAN, 0) == f"0.123 ± {half:.3f}"
    for of in ([0.1], [0.1, np.inf, 0.2], [0.1, np.nan], [0.1, 0.1 + 1e-9]):
        assert results({MEAN: [Row(errors=of)]}, len(of)).half(MEAN, 0) == 0


def test_the_spread_over_the_seeds_is_that_of_the_first_samples():
    seeds = [Row(errors=[0.1, 0.3, 0.9]), Row(errors=[0.2, 0.4, 0.5])]
    found = results({MODEL: seeds}, 3)
    object.__setattr__(found, "rows", {MODEL: [seeds]})
    for n, means in ((2, [0.2, 0.3]), (3, [1.3 / 3, 1.1 / 3])):
        words = found._mean_and_spread(MODEL, 0, "errors", n)
        assert words == (significant(np.mean(means)), significant(np.std(means, ddof=1)))
    assert found._mean_and_spread(MODEL, 0, "crps", 3) == ("", "")


def test_two_phases_are_ranked_by_their_area_and_shown_with_crps_and_error():
    rows = {
        MODEL: [Row(errors=[0.1, 0.2], scores={"misclassified": [0.3, 0.5], "crps": [0.2, 0.4]})],
        TV: [Row(errors=[0.6, 0.8], scores={"misclassified": [0.1, 0.2], "crps": [0.3, 0.5]})],
        MEAN: [Row(errors=[0.9, 0.9], scores={"misclassified": [0.6, 0.6]})],
    }
    found = results(rows, 2, values=(3.0, 12.0))
    table = found.error_table(found.groups[0])
    assert table.header == (
        "method", "level, σ(x)", "n", "area", "difference from the smallest", "CRPS", "L² error",
    )  # fmt: skip
    assert [row[0] for row in table.rows] == [TV.name, MODEL.name, MEAN.name]
    assert [row[5:7] for row in table.rows] == [
        ("0.400", "0.700"), ("0.300", "0.150"), ("", "0.900"),
    ]  # fmt: skip
    assert found.headline("here", found.groups[0], 0)[0] == (
        f"smallest mean area at here ({TV.name})"
    )


def test_differences_are_those_of_pairs():
    """The errors vary by 0.4, their differences by 0.01."""
    model, inversion = [0.1, 0.3, 0.5], [0.12, 0.31, 0.52]
    found = results({MODEL: [Row(errors=model)], TV: [Row(errors=inversion)],
                     MEAN: [Row(errors=[0.9] * 3)]}, 3)  # fmt: skip
    table = found.error_table(found.groups[0])
    line = next(row for row in table.rows if row[0] == "total variation")
    paired = np.subtract(inversion, model)
    half = np.ptp(stats.ttest_1samp(paired, 0).confidence_interval()) / 2
    assert line[table.header.index("difference from the smallest")] == (
        f"{paired.mean():.4f} ± {half:.4f}"
    )


@pytest.mark.parametrize(
    ("weight", "place"), [(0.1, "0.1 (smallest)"), (0.3, "0.3"), (1.0, "1 (largest)")]
)
def test_failed_inversions_are_named_with_their_weight_and_its_place(weight, place):
    constant = Row(errors=[0.5, 0.7])
    worse = results({MEAN: [constant], TV: [Row(errors=[0.6, 0.7], weight=weight)]}, 2)
    assert worse.failure(TV, 0) == "error 0.650 > 0.600 of the constant"
    scores = {"misfit": [51.0, 51.0]}
    far = results({MEAN: [constant], TV: [Row(errors=[0.1] * 2, weight=weight, scores=scores)]}, 2)
    assert far.failure(TV, 0) == "misfit 51"
    (line,) = far.failure_table().rows
    assert line == ("total variation", "0.1", "2", "misfit 51", place)
    assert far.failure(MEAN, 0) == ""
    near = Row(errors=[0.1] * 2, scores={"misfit": [0.9 * UNEXPLAINED] * 2}, weight=weight)
    assert results({MEAN: [constant], TV: [near]}, 2).failure_table() is None
    edge = Row(errors=[0.1] * 2, scores={"misfit": [UNEXPLAINED] * 2}, weight=weight)
    assert results({MEAN: [constant], TV: [edge]}, 2).failure(TV, 0) == "misfit 3"
    # a model does not know the data
    model = results({MEAN: [constant], MODEL: [Row(errors=[0.1] * 2, scores=scores)]}, 2)
    assert model.failure(MODEL, 0) == ""
    assert results({MEAN: [constant], MODEL: [Row(errors=[0.9] * 2)]}, 2).failure(MODEL, 0)


def test_an_inversion_that_did_not_converge_says_so():
    rows = {MEAN: [Row(errors=[0.5] * 2)], TV: [Row(errors=[0.1] * 2, weight=0.3, converged=1)]}
    found = results(rows, 2)
    (group,) = found.groups
    table = found.error_table(group)
    column = table.header.index("converged")
    assert {row[0]: row[column] for row in table.rows} == {
        "total variation": "1 of 2", "constant": "",
    }  # fmt: skip
    words, error = found.headline("test level 0.1", group, 0)
    assert words.endswith("0.1 (total variation, converged on 1 of 2)")
    assert float(error) == 0.1
    rows[TV] = [Row(errors=[0.1] * 2, weight=0.3, converged=2)]
    assert results(rows, 2).headline("x", group, 0)[0].endswith("x (total variation)")


def test_a_method_that_failed_is_no_headline():
    scores = {"misfit": [2 * UNEXPLAINED] * 2}
    rows = {MEAN: [Row(errors=[0.5] * 2)],
            TV: [Row(errors=[0.1] * 2, scores=scores, weight=0.3)]}  # fmt: skip
    found = results(rows, 2)
    assert found.headline("x", found.groups[0], 0)[0].endswith("(constant)")
    assert found.best(found.groups[0], 0) == MEAN


def test_an_error_that_is_not_finite_is_a_failure():
    found = results({MEAN: [Row(errors=[0.5])], TV: [Row(errors=[np.inf], weight=0.3)]}, 1)
    assert found.failure(TV, 0)


# the page of a finished study


def test_the_report_leads_with_the_results(finished):
    page = (finished.folder / "report.html").read_text()
    titles = re.findall(r"<h2>([^<]*)</h2>", page)
    assert titles == [
        "Errors", "Errors against the level", "Calibration", "Weights and costs", "Other measures",
        "Reconstructions", "Noise", "Setting", "Protocol", "How to reproduce it",
    ]  # fmt: skip


def test_the_protocol_can_be_taken_over(finished):
    text = (finished.folder / "report.md").read_text()
    protocol = text[text.index("## Protocol") : text.index("## How to reproduce")]
    for words in (
        "Darcy", "u on 13² points → a on 5² cells", "Noise of u: ensemble", "ε = 0.1: s/σ 0.1",
        "trained on all 12 samples with noise 0, 0.1, all levels, 2 seeds each",
        "total variation, Tikhonov, level set (told ensemble noise, the level, the recipe without "
        "the law of a); maximum a posteriori (told ensemble noise, the level, the recipe); maximum "
        "a posteriori, level estimated (told ensemble noise, no level, the recipe)",
        "on 13² points", "4 test samples; classical methods use the first 2",
        "Misclassified area", "pdegen 0",
    ):  # fmt: skip
        assert words in protocol, words


def test_the_median_and_the_worst_sample_are_shown(finished):
    page = (finished.folder / "report.md").read_text()
    shown = dict(
        re.findall(r"Test sample (\d+), the (median|worst) one of [^*]*?at level 0\.1", page)
    )
    assert sorted(shown.values()) == ["median", "worst"]
    numbers = [int(number) for number in finished.test_pairs(0.1).ids[:2]]
    assert sorted(map(int, shown)) == sorted(numbers)  # two samples have classical answers


def test_every_row_of_a_method_has_its_number_of_samples(finished):
    tables = [*(finished.folder / "tables").glob("errors-*.csv")]
    tables += [finished.folder / "tables" / f"{name}.csv"
               for name in ("calibration", "weights-and-costs", "other-measures")]  # fmt: skip
    assert len(tables) >= 4
    for file in tables:
        for row in csv.DictReader(file.read_text().splitlines()):
            assert int(row["n"]) in (2, 4)
            assert int(row["n"]) == 2 or row["method"] not in {c.name for c in finished.classical}
    kept = csv.DictReader((finished.folder / "measures.csv").read_text().splitlines())
    assert {(row["method"] == "total variation", row["n"]) for row in kept
            if row["measure"] == "errors" and row["method"] in ("total variation", "constant")
            } == {(True, "2"), (False, "4")}  # fmt: skip


def test_plus_minus_has_one_meaning_and_the_digits_of_its_mean(finished):
    page = Page((finished.folder / "report.html").read_text())
    printed = r"([\d.]+)(e-?\d+)? ± ([\d.]+)(e-?\d+)?"
    found = re.findall(printed, " ".join(c for row in page.rows for c in row))
    assert len(found) > 10
    for mean, exponent, half, same in found:
        assert exponent == same
        assert len(mean.partition(".")[2]) == len(half.partition(".")[2])
    svg = (finished.folder / "pictures" / "matrix.svg").read_text()
    errors = np.array(finished.row(Cell(CONSTANT, at=0.1), HOW).scores["misclassified"])
    half = np.ptp(stats.ttest_1samp(errors, 0).confidence_interval()) / 2
    assert half > 0
    decimals = len(significant(errors.mean()).partition(".")[2])
    assert f"± {half:.{decimals}f}" in svg  # the figure has the intervals of the table
    assert f"{significant(errors.mean())} ± {half:.{decimals}f}" in " ".join(
        c for row in page.rows for c in row
    )


def test_the_data_are_identified_and_cited(finished):
    from pdegen.store.reading import open_sealed

    page = (finished.folder / "report.html").read_text()
    metadata = open_sealed(finished.store).metadata
    for words in (metadata.content, "@misc{pdegen-", "Label error", metadata.fingerprint):
        assert words in page
    assert page.count("<mtext>on the boundary</mtext>") <= page.count("<math") >= 2


# the noise


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "published"])
def test_noise_has_a_formula_a_unit_and_sizes(experiment, store, tmp_path, kind):
    """A level of 20 dB is a tenth of the root mean square, whatever the kind calls it."""
    level = 20.0 if kind == "snr" else 0.1
    study = a_study(
        experiment.with_overrides({"noise.kind": kind, "noise.level": level}), store,
        tmp_path / "s", (level,), (level,),
    )  # fmt: skip
    section = noise_section(study)
    (table,) = section.tables
    (line,) = table.rows
    model = KINDS[kind](level)
    assert table.header[0] == f"level, {model.unit}"
    assert (model.unit == "dB") == (kind == "snr")
    clean = study.source.samples("test", noise=None).resident().a[..., 0].double().numpy()
    noisy = study.test_pairs(level).a[..., 0].double().numpy()
    seen = study.inversions.seen(clean.shape[1:])
    if seen is not None:
        clean, noisy = clean[:, seen], noisy[:, seen]
    size = np.sqrt(np.mean((noisy - clean) ** 2))
    assert line[1] == significant(size)
    ratio = 20 * np.log10(np.sqrt(np.mean(clean**2)) / size)
    assert line[3] == f"{ratio:.1f}"
    if kind in ("snr", "relative", "multiplicative"):
        assert float(line[3]) == pytest.approx(20, abs=1)  # 4 samples of 169 values
    assert section.formulas[0].latex == model.latex
    assert model.unit in section.text[0]


def test_levels_without_noise_have_an_infinite_ratio(finished):
    (table,) = noise_section(finished).tables
    assert table.rows[0] == ("0", "0", "0", "∞")
    assert [row[0] for row in table.rows] == ["0", "0.1"]
