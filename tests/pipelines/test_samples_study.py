"""The study of the number of samples: what is trained, what is the same for all, its report."""

from __future__ import annotations

from typing import Any

import pytest

from pdegen.schema import SchemaError
from pipelines.config.experiment import load_experiment
from pipelines.studies.samples import label, parse_numbers, samples_study
from tests.once import once
from tests.pipelines.command import quietly
from tests.pipelines.conftest import SMALL

SETS = {
    **SMALL,
    "resolutions": [16],
    "training.epochs": 2,
    "training.batch": 4,
    "data.epoch_samples": 12,
}
SETS |= {"data.overrides.samples": 24, "data.overrides.splits.train": 16,
         "data.overrides.splits.validation": 4, "data.overrides.splits.test": 4}  # fmt: skip
WORDS = [word for key, value in SETS.items() for word in ("--set", f"{key}={value}")]


def study(*numbers: int | None, seeds: int = 1, **changes: Any) -> Any:
    return samples_study("burgers-stream-quick", numbers, seeds, {**SETS, **changes})


def experiments(benchmark: Any) -> list[Any]:
    return [benchmark.experiment(case, 1, {}) for case in benchmark.cases()]


def test_all_have_one_store_whose_training_split_holds_the_largest_number():
    found = experiments(study(8, 40, None))
    assert [e.data.samples for e in found] == [8, 40, None]
    assert [e.data.stream is None for e in found] == [True, True, False]
    assert len({e.data.load_recipe().fingerprint for e in found}) == 1
    recipe = found[0].data.load_recipe()
    assert recipe.splits.model_dump() == {"train": 40, "validation": 4, "test": 4}
    assert recipe.samples == 48
    assert found[2].data.stream.load_recipe().problem == recipe.problem
    unchanged = experiments(study(8, None))[0].data.load_recipe()
    assert unchanged.samples == 24


def test_all_take_as_many_steps():
    found = experiments(study(8, 40, None))
    assert {e.data.epoch_samples for e in found} == {12}
    assert len({e.training.model_copy(update={"seed": 0}) for e in found}) == 1
    assert {e.training.seed for e in found} == {1}
    of_the_recipe = samples_study("burgers-quick", [64, None], 1, {})
    assert {e.data.epoch_samples for e in experiments(of_the_recipe)} == {512}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished study with its store, to be read only."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            quietly("study", "samples", "burgers-stream-quick", "--samples", "8,16,unlimited",
                    "--seeds", "2", *WORDS, "--out", "study")  # fmt: skip

    return once(tmp_path_factory, "samples-study", make)


def test_the_report_says_what_each_number_gave(made):
    text, table = ((made / "study" / name).read_text("utf-8") for name in ("report.md", "table.md"))
    for page in (table, text):
        passes = {
            cells[1].strip(): cells[5].strip()
            for cells in (line.split("|") for line in page.splitlines() if line.count("|") == 7)
        }
        assert {"8": "3", "16": "1.5", "unlimited (24)": "1"}.items() <= passes.items()
        assert "mean of the targets" in passes
    assert "±" in table
    assert "6 with each number of samples, 4 samples per step, evaluated 2 times" in text
    assert "4 validation and 4 test samples of one store" in text
    assert len(list((made / "data").iterdir())) == 1


def test_it_goes_on_where_it_was(made, monkeypatch):
    monkeypatch.chdir(made)
    report = made / "study/report.md"
    before, rows = report.read_bytes(), list((made / "study/rows").iterdir())
    assert len(rows) == 6
    runs = {p: p.stat().st_mtime_ns for p in (made / "study/runs").rglob("*.safetensors")}
    quietly("study", "samples", "burgers-stream-quick", "--samples", "8,16,unlimited", "--seeds",
            "2", *WORDS, "--out", "study", "--resume")  # fmt: skip
    assert report.read_bytes() == before
    assert {p: p.stat().st_mtime_ns for p in runs} == runs


@pytest.mark.parametrize(
    ("numbers", "changes", "message"),
    [
        ((), {}, "must differ, got none"),
        ((8, 8), {}, "must differ, got 8,8"),
        ((2, None), {}, "a batch has 4 samples, got 2"),
        ((8,), {"data.samples": 4}, "the study sets data.stream and data.samples"),
        (
            (8,),
            {"data.stream.recipe": "burgers-quick"},
            "the study sets data.stream and data.samples",
        ),
        ((8,), {"training.seed": 3}, "use --seeds"),
        ((8,), {"training": {"seed": 3}}, "use --seeds"),
        ((8,), {"data": {"samples": 4}}, "the study sets data.stream and data.samples"),
        ((8,), {"data.reading": "streamed", "bach": 3}, "unknown key 'bach'"),
    ],
)
def test_an_impossible_study_is_refused(numbers, changes, message):
    with pytest.raises(SchemaError, match=message):
        study(*numbers, **changes)


def test_a_study_is_a_benchmark_of_one_operator():
    found, experiment = study(8, 40, None, seeds=3), load_experiment("burgers-stream-quick")
    assert found.name == "burgers-stream-quick-samples"
    assert found.summary == (f"{experiment.summary}: error against the number of training samples")
    assert list(found.datasets) == ["8 samples", "40 samples", "unlimited samples"]
    assert {d.experiment for d in found.datasets.values()} == {"burgers-stream-quick"}
    assert list(found.operators) == [experiment.model.name]
    assert found.operators[experiment.model.name].model.width == SMALL["model.width"]
    assert (found.seeds, found.search, found.protocols) == (3, {}, ())


def test_a_stream_has_the_overrides_of_the_recipe():
    found = study(8, None).datasets
    stream = found["unlimited samples"].overrides
    assert stream["data.stream.recipe"] == "burgers-quick"
    name = "data.overrides.problem.resolution"
    assert stream[f"data.stream.{name.removeprefix('data.')}"] == stream[name] == 32
    assert "data.samples" not in stream
    assert found["8 samples"].overrides["data.samples"] == 8
    assert not any(key.startswith("data.stream") for key in found["8 samples"].overrides)


def test_numbers_are_words_or_positive():
    assert parse_numbers(" 8, unlimited ,1024") == (8, None, 1024)
    for text in ("0,8", "8,", "-8", "8,all", "8.5"):
        with pytest.raises(SchemaError, match=f"numbers >= 1 or unlimited.*got '{text}'"):
            parse_numbers(text)
    assert (label(None), label(12), label(65536)) == (
        "unlimited samples", "12 samples", "65,536 samples",
    )  # fmt: skip
