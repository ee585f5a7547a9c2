"""A noise study that was stopped, damaged or extended."""

import json
import pickle
import shutil
from dataclasses import replace

import pytest

from operators.training.fit import Stopped
from pdegen.files import read_json, write_json
from pipelines.config.conditions import StudyCondition
from pipelines.config.experiment import Experiment
from pipelines.reports.noise_report import write_noise_report
from pipelines.runs.folder import RunError
from pipelines.studies import runner
from pipelines.studies.inversions import Cell
from pipelines.studies.noise import NoiseStudy
from pipelines.studies.runner import Execution
from tests.pipelines.noise.conftest import CPU, a_study

HOW = Execution(CPU)
CORRELATED = StudyCondition(noise={"kind": "correlated"})


def cells(study):
    return {p.name: p.read_bytes() for p in sorted((study.folder / "cells").glob("*.json"))}


def test_a_stopped_study_goes_on_to_the_same_rows(
    experiment, store, finished, tmp_path, monkeypatch
):
    """Each part is made once, the training that was stopped goes on."""
    words = {"only": ("Tikhonov", "maximum a posteriori"), "assumed_levels": (1.0,)}
    study = a_study(experiment, store, tmp_path / "s", (0.1,), (0.1,), **words)
    asked, made = list[int](), list[Cell]()
    make = NoiseStudy.make

    def noted(self, part, how):
        made.append(part)
        return make(self, part, how)

    def stop():
        asked.append(len(made))
        return asked.count(2) == 3  # in the second training

    monkeypatch.setattr(NoiseStudy, "make", noted)
    with pytest.raises(Stopped):
        study.run(CPU, stop=stop)
    assert made == [Cell(0.1), Cell(0.1, 1)]
    assert not (study.folder / "cells").exists()
    text = study.experiment.model_dump_json()  # as another process declares it
    again = replace(study, experiment=Experiment.parse(json.loads(text), "again"))
    with pytest.raises(Stopped):
        again.run(CPU, resume=True, stop=lambda: len(made) == 5)
    again.run(CPU, resume=True)
    assert len(made) == 1 + len({*made}) == 1 + 2 + 2 + 2 + 1 + 2 + 1
    for name in cells(study):
        rows = [json.loads(cells(one)[name]) for one in (study, finished)]
        assert rows[0]["errors"] == rows[1]["errors"], name


def test_finished_cells_are_not_computed_again(finished, monkeypatch):
    before, page = cells(finished), (finished.folder / "report.html").read_bytes()

    def computed(*arguments, **words):
        raise AssertionError("computed again")

    monkeypatch.setattr(runner, "train_part", computed)
    monkeypatch.setattr(runner, "predictions", computed)
    monkeypatch.setattr(NoiseStudy, "_inverted", computed)
    finished.run(CPU, resume=True)
    assert cells(finished) == before
    write_noise_report(finished, CPU)
    assert (finished.folder / "report.html").read_bytes() == page


def test_another_process_is_sent_the_same_study(finished, tmp_path):
    for study in (finished, replace(finished, conditions={"c": CORRELATED}, cells=9)):
        assert pickle.loads(pickle.dumps(study)) == study


def test_more_levels_extend_a_study(experiment, store, finished, tmp_path, monkeypatch):
    folder = shutil.copytree(finished.folder, tmp_path / "s")
    monkeypatch.setattr(runner, "train_part", lambda *a, **k: pytest.fail("trained again"))
    words = {"only": ("Tikhonov",), "assumed_levels": (1.0,), "seeds": 1}
    a_study(experiment, store, folder, test=(0.0, 0.2), **words).run(CPU, resume=True)
    assert len(list((folder / "cells").glob("*at-0.2.json"))) == 3 + 1 + 1


def test_what_is_damaged_or_stale_is_made_again(finished, tmp_path):
    study = replace(finished, folder=shutil.copytree(finished.folder, tmp_path / "s"))
    before, place = cells(study), study.folder / "cells" / "model-0-seed-0-at-0.json"
    for bad in ("{", json.dumps({**json.loads(place.read_text()), "made_from": "other"})):
        place.write_text(bad)
        study.row(Cell(0.0, 0, 0.0), HOW)
        assert cells(study) == before
    path = study.training(Cell(0.0, 0)).checkpoint
    right = path.read_bytes()
    path.write_bytes(right[:-1])
    study.run(CPU, resume=True)
    assert path.read_bytes() == right
    assert cells(study) == before


def test_a_study_of_an_earlier_version_goes_on(experiment, store, finished, tmp_path):
    """Its record lacks keys that experiments have now."""
    folder = shutil.copytree(finished.folder, tmp_path / "study")
    record = read_json(folder / "study.json")
    del record["experiment"]["training"]["start"]
    write_json(folder / "study.json", record)
    a_study(experiment, store, folder).claim(CPU, resume=True, overwrite=False)
    assert read_json(folder / "study.json")["experiment"] == record["experiment"]


def test_another_study_in_the_folder_is_refused(experiment, store, finished):
    with pytest.raises(RunError, match="holds a study: use --resume or --overwrite"):
        finished.run(CPU)
    other = experiment.with_overrides({"training.epochs": 3})
    with pytest.raises(RunError, match=r"is finished with training\.epochs = 2, not 3"):
        a_study(other, store, finished.folder).run(CPU, resume=True)
