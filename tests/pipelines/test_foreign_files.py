"""No result is made from a file of another result: each file of each kind of folder is replaced by
that of another folder, and whoever reads it refuses or computes it again.

`pytest -s` prints what each reader did with each file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from operators.data import DataError
from operators.registry import build_operator
from operators.training.checkpoint import load_checkpoint, load_state, saving_state
from operators.training.identity import MADE_FROM
from pdegen.files import read_json, read_lines, write_json, write_lines
from pdegen.generation.generate import generate
from pdegen.plugins import load_plugin
from pdegen.recipe import load_recipe
from pipelines.config.benchmark import Benchmark, Profile
from pipelines.config.experiment import load_experiment
from pipelines.reports.benchmark_report import write_benchmark_report, write_profile_report
from pipelines.reports.comparison_report import write_comparison
from pipelines.reports.noise_report import write_noise_report
from pipelines.reports.report import write_report
from pipelines.runs.comparison import COMPARISON, read_comparison
from pipelines.runs.evaluation import evaluate, evaluate_run, predict
from pipelines.runs.finished import read_finished
from pipelines.runs.folder import RunError
from pipelines.runs.model_folder import export_model
from pipelines.runs.training import train
from pipelines.studies import benchmark as profile_module
from pipelines.studies.benchmark import BenchmarkRun, ProfileRun, break_evens
from pipelines.studies.cost import Cost
from pipelines.studies.noise import NoiseStudy
from pipelines.tracking.tracker import Tracker
from tests.pipelines.command import everything
from tests.pipelines.conftest import CPU
from tests.pipelines.test_benchmark import CONTENT
from tests.pipelines.test_cache_keys import COARSER
from tests.plugins import registered_alone

pytestmark = pytest.mark.usefixtures("unpainted")

LOSS = """
from operators.norms import relative_error
from operators.registry import register_loss


class Mine:
    def __call__(self, prediction, target, a):
        return {factor} * relative_error(prediction, target).mean()


register_loss("mine", Mine)
"""
MODEL = {"model.name": "fno", "model.width": 4, "model.depth": 1, "model.modes": 4}
TRAINING = {"training.loss.name": "mine", "training.epochs": 2, "training.batch": 4}
SMALL = {**MODEL, **TRAINING, "data.resolution": 16, "resolutions": [16]}
DATA = {"samples": 12, "shard": 12, "problem.resolution": 32, "modes": 31, "train": 8,
        "validation": 2, "test": 2, "problem.solver.resolution": 64}  # fmt: skip
SILENT = Tracker("silent", lambda run: lambda rows, status, files: None)
# computed by the clock
TIMES = re.compile(r"seconds|provenance")
# no result comes from them
ASIDE = re.compile(
    r"(^|/)(\.written\.jsonl|processor\.json|history\.csv)$"
    r"|\.(html|md|toml)$|(pictures|tables)/"
)
Reader = Callable[[Path], Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    with registered_alone():
        yield tmp_path_factory.mktemp("foreign")


@pytest.fixture(scope="module")
def version(place) -> Callable[[int], object]:
    """Loads a version of the user's file."""

    def load(factor: int) -> object:
        (place / "mine.py").write_text(LOSS.format(factor=factor), "utf-8")
        return load_plugin(str(place / "mine.py"))

    return load


@pytest.fixture(scope="module")
def stores(place) -> list[str]:
    """Two stores that differ in the seed of their recipe."""
    recipes = [load_recipe("burgers-quick").with_overrides({**DATA, "seed": s}) for s in (1, 2)]
    return [generate(r, str(place / f"{r.seed}.zarr"), workers=1).url for r in recipes]


def plain(value: Any) -> Any:
    """A result without what the clock and the place of its folder decide."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if not TIMES.search(str(k))}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def kind(name: str) -> str:
    """Name of a file without the digest that it may have."""
    return re.sub(r"-[0-9a-f]{12}\.py$", ".py", name)


def outcome(read: Reader, folder: Path, swapped: dict[Path, bytes], expected: Any) -> str:
    """What a reader does with a folder in which files are those of another folder."""
    refusal, result = None, None
    try:
        result = read(folder)
    except ValueError as error:
        refusal = error
    if refusal is not None:
        assert getattr(refusal, "exit_status", None) == 2, refusal
        assert "\n" not in str(refusal)
        return "refused"
    assert plain(result) == plain(expected), f"{read.__name__}, {[*swapped]}"
    kept = all(path.exists() and path.read_bytes() == data for path, data in swapped.items())
    return "not read" if kept else "recomputed"


def swaps(
    folder: Path, others: dict[str, Path], readers: list[Reader], tmp_path: Path
) -> dict[tuple[str, str], dict[str, str]]:
    """Outcomes of all readers for each file of a folder, replaced by the same file of another.

    A file that no other folder has, such as a report, or that is the same in all is replaced by
    some text. Files of which nobody makes a result are replaced together.
    """
    expected = {}
    for number, read in enumerate(readers):
        expected[read] = read(shutil.copytree(folder, tmp_path / f"whole-{number}"))
    groups: dict[tuple[str, str], dict[str, bytes]] = {}
    for name in files_in(folder):
        if "seed-1" in name:  # of the same kinds as the files of the other seed
            continue
        right = (folder / name).read_bytes()
        sources = {
            other: (source / same).read_bytes()
            for other, source in others.items()
            for same in files_in(source)
            if kind(same) == kind(name)
        }
        place = "aside" if ASIDE.search(name) else kind(name)
        foreign = {other: data for other, data in sources.items() if data != right}
        for other, data in (foreign or {"any": b"another result"}).items():
            groups.setdefault((place, other), {})[name] = data
    found: dict[tuple[str, str], dict[str, str]] = {}
    for group, files in groups.items():
        for number, read in enumerate(readers):
            copy = shutil.copytree(folder, tmp_path / "swapped" / f"{len(found)}-{number}")
            for name, data in files.items():
                (copy / name).write_bytes(data)
            swapped = {copy / name: data for name, data in files.items()}
            done = outcome(read, copy, swapped, expected[read])
            found.setdefault(group, {})[read.__name__] = done
            shutil.rmtree(copy)
    for (name, other), done in found.items():
        print(f"| {name} | {other} | {', '.join(f'{k}: {v}' for k, v in done.items())} |")
    return found


# runs


def a_run(folder: Path, store: str, **further: Any) -> Path:
    settings = {**SMALL, **{key.replace("__", "."): value for key, value in further.items()}}
    experiment = load_experiment("burgers-quick").with_overrides(settings)
    train(experiment, store, folder, CPU, track=[SILENT])
    evaluate_run(experiment, store, folder, CPU)
    return folder


@pytest.fixture(scope="module")
def runs(place, stores, version) -> dict[str, Path]:
    """Runs that differ from the first one in a single thing. Their plugin is loaded."""
    version(2)
    other = a_run(place / "plugin", stores[0])
    version(1)
    run = a_run(place / "run", stores[0])
    write_report(run, stores[0], CPU)
    return {
        "run": run,
        "data": a_run(place / "data", stores[1]),
        "seed": a_run(place / "seed", stores[0], training__seed=1),
        "plugin": other,
    }


def readers_of_runs(store: str, beside: Path, tmp_path: Path) -> list[Reader]:
    numbers = iter(range(10**6))
    experiment = load_experiment("burgers-quick").with_overrides(SMALL)

    def report(run: Path) -> Any:
        found = read_finished(run, store, CPU)
        scores = [score.summary() for score in found.scores.results + found.scores.trivial]
        epochs = [(epoch.loss, epoch.score) for epoch in found.history]
        return scores, epochs, found.prediction.tolist(), found.mean.tolist()

    def compare(run: Path) -> Any:
        found = read_comparison([beside, run], tmp_path / "none", CPU, data=store)
        return found.summary()["differing"], [v.errors.tolist() for v in found.variants]

    def export(run: Path) -> Any:
        out = export_model(run, tmp_path / f"model-{next(numbers)}")
        return (out / "model.safetensors").read_bytes()

    def evaluates(run: Path) -> Any:
        return evaluate(run / "best.safetensors", store, CPU).summary()

    def predicts(run: Path) -> Any:
        out = tmp_path / f"{next(numbers)}.zarr"
        predict(run / "best.safetensors", store, out, CPU)
        return [(out / "u/c" / name).read_bytes() for name in files_in(out / "u/c")]

    def resume(run: Path) -> Any:
        train(experiment, store, run, CPU, resume=True, track=[SILENT])
        scores = evaluate_run(experiment, store, run, CPU)
        weights = load_checkpoint(run / "last.safetensors", build_operator)[0].state_dict()
        return scores["results"], {name: values.tolist() for name, values in weights.items()}

    return [report, compare, export, evaluates, predicts, resume]


def test_files_of_another_run(runs, stores, tmp_path):
    others = {name: folder for name, folder in runs.items() if name != "run"}
    readers = readers_of_runs(stores[0], runs["seed"], tmp_path)
    found = swaps(runs["run"], others, readers, tmp_path)
    results = ("run.json", "scores.json", "history.jsonl", "best.safetensors")
    for name, other in found:
        if name in results:
            assert found[name, other]["report"] == found[name, other]["compare"] == "refused"
    for other in others:
        assert found["best.safetensors", other]["predicts"] == "refused"
        assert found["state.pt", other]["resume"] == "refused"
        assert found["last.safetensors", other]["resume"] == "refused"


@pytest.mark.usefixtures("runs")
def test_files_of_another_model_folder(runs, stores, tmp_path):
    folders = {name: export_model(run, tmp_path / name) for name, run in runs.items()}
    folder = folders.pop("run")

    def evaluates(model: Path) -> Any:
        return evaluate(model, stores[0], CPU).errors

    found = swaps(folder, folders, [evaluates], tmp_path)
    for name in ("model.safetensors", "config.json"):
        assert all(found[name, other]["evaluates"] == "refused" for other in folders)


def test_files_of_another_comparison(runs, tmp_path):
    def compare(*names: str) -> Path:
        out = tmp_path / "-".join(names)
        write_comparison(read_comparison([runs[name] for name in names], out, CPU), out)
        return out

    def overwrite(folder: Path) -> bool:
        return COMPARISON.check(folder, False, True)

    found = swaps(compare("run", "seed"), {"data": compare("run", "data")}, [overwrite], tmp_path)
    assert found


def test_runs_that_differ_in_a_plugin_or_in_data_are_not_the_same(runs, stores, tmp_path):
    """Neither are they seeds of one run."""
    for other, key in (("plugin", "loss (SHA-256)"), ("data", "data (SHA-256)")):
        found = read_comparison([runs["run"], runs[other]], tmp_path / other, CPU)
        assert list(found.differing()) == [key]
        folders = [runs["run"], runs["seed"], runs[other]]
        three = read_comparison(folders, tmp_path / "three", CPU)
        grouped = [variant.folders for variant in three.variants]
        assert grouped == [(folders[0], folders[1]), (folders[2],)]


def test_a_store_that_is_replaced_during_a_training_is_refused(stores, version, tmp_path):
    version(1)
    store, experiment = tmp_path / "s.zarr", load_experiment("burgers-quick").with_overrides(SMALL)
    shutil.copytree(stores[0], store)

    def replaced(epoch: object) -> None:
        shutil.rmtree(store)
        shutil.copytree(stores[1], store)

    train(experiment, str(store), tmp_path / "run", CPU, on_epoch=replaced)
    with pytest.raises(DataError, match=r"s\.zarr has other data than the training \(content"):
        evaluate_run(experiment, str(store), tmp_path / "run", CPU)
    assert not (tmp_path / "run/scores.json").exists()


def as_of_earlier_versions(run: Path) -> Path:
    """A run whose files record no keys."""
    for name in ("scores.json", "tracking.json"):
        content = read_json(run / name)
        del content[MADE_FROM]
        write_json(run / name, content)
    lines = [{k: v for k, v in line.items() if k not in (MADE_FROM, "sha256")}
             for line in read_lines(run / "history.jsonl")]  # fmt: skip
    write_lines(run / "history.jsonl", lines)
    state = load_state(run / "state.pt", CPU)
    del state[MADE_FROM]
    saving_state(run / "state.pt", state)()
    return run


def test_a_run_without_keys_is_read_and_resumed_with_a_warning(runs, stores, tmp_path, caplog):
    run = as_of_earlier_versions(shutil.copytree(runs["run"], tmp_path / "run"))
    readers = {reader.__name__: reader for reader in readers_of_runs(stores[0], run, tmp_path)}
    assert readers["report"](run) == readers["report"](runs["run"])
    for name in ("scores.json", "history.jsonl"):
        assert f"{run / name} does not say what it was made from" in caplog.text
    caplog.clear()
    whole = shutil.copytree(runs["run"], tmp_path / "whole")
    assert plain(readers["resume"](run)) == plain(readers["resume"](whole))
    for name in ("state.pt", "tracking.json"):
        assert f"{run / name} does not say what it was made from" in caplog.text
    assert read_json(run / "scores.json")[MADE_FROM] == read_json(whole / "scores.json")[MADE_FROM]
    for other in ("data", "seed"):  # what contradicts is refused
        foreign = as_of_earlier_versions(shutil.copytree(runs[other], tmp_path / other))
        for name, reader in (("scores.json", "report"), ("state.pt", "resume")):
            copy = shutil.copytree(runs["run"], tmp_path / f"{other}-{name}")
            as_of_earlier_versions(copy)
            shutil.copy(foreign / name, copy / name)
            with pytest.raises(ValueError, match=rf"{name}.* (belongs|are of two)"):
                readers[reader](copy)


# studies


def with_siblings_exchanged(folder: Path, at: Path) -> Path:
    """A copy in which the files of one seed have the names of those of the other."""
    for name in files_in(folder):
        other = re.sub(r"seed-([01])", lambda m: f"seed-{1 - int(m[1])}", name)
        (at / other).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, at / other)
    return at


def rows_of(study: Any) -> Any:
    return sorted((row.model_dump(mode="json") for row in study.rows()), key=str)


def test_files_of_another_noise_study(place, stores, version, tmp_path):
    settings = {**SMALL, "noise": {"level": 0.1}}
    experiment = load_experiment("burgers-quick").with_overrides(settings)

    def study(folder: Path, store: str = stores[0]) -> NoiseStudy:
        return NoiseStudy(experiment, store, folder, (0.1,), (0.1,), 2, only=("none",))

    def resume(folder: Path) -> Any:
        study(folder).run(CPU, resume=True)
        return rows_of(study(folder))

    version(2)
    study(tmp_path / "plugin").run(CPU)
    version(1)
    study(tmp_path / "study").run(CPU)
    study(tmp_path / "data", stores[1]).run(CPU)
    write_noise_report(study(tmp_path / "study"), CPU)
    others = {name: tmp_path / name for name in ("plugin", "data")}
    others["seed"] = with_siblings_exchanged(tmp_path / "study", tmp_path / "seed")
    found = swaps(tmp_path / "study", others, [resume], tmp_path)
    for other in others:
        checkpoint = "models/level-0.1-seed-0/best.safetensors"
        assert found[checkpoint, other]["resume"] == "refused"
    for other in ("data", "plugin"):  # as a whole
        with pytest.raises(RunError, match=r"is finished with (data|loss) of SHA-256 \w+, not "):
            resume(others[other])


def test_files_of_another_benchmark(stores, version, tmp_path):
    dataset = {"experiment": "benchmark-burgers-quick", "coarser": COARSER, "overrides": {
        **TRAINING, "data.resolution": 16, "resolutions": [16]}}  # fmt: skip
    fno = {"FNO": {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}}
    content = {**CONTENT, "datasets": {"burgers": dataset}, "operators": fno}
    benchmark = Benchmark.parse({**content, "budget": {"seconds": 1e-9}}, "small")

    def run(folder: Path, store: str = stores[0]) -> BenchmarkRun:
        return BenchmarkRun(benchmark, {"burgers": store}, folder)

    def resume(folder: Path) -> Any:
        run(folder).run(CPU, resume=True)
        return rows_of(run(folder)), run(folder).trivial("burgers")

    def break_even(folder: Path) -> Any:
        return break_evens(folder)

    version(2)
    run(tmp_path / "plugin").run(CPU)
    version(1)
    run(tmp_path / "run").run(CPU)
    run(tmp_path / "data", stores[1]).run(CPU)
    write_benchmark_report(run(tmp_path / "run"), CPU)
    others = {name: tmp_path / name for name in ("plugin", "data")}
    others["seed"] = with_siblings_exchanged(tmp_path / "run", tmp_path / "seed")
    found = swaps(tmp_path / "run", others, [resume, break_even], tmp_path)
    for other in others:
        checkpoint = "runs/burgers/fno/seed-0-epochs-2/best.safetensors"
        assert found[checkpoint, other]["resume"] == "refused"
    for other in ("data", "plugin"):  # as a whole
        before = everything(others[other])
        with pytest.raises(RunError, match=r"is finished with (data|loss) of SHA-256 \w+, not "):
            resume(others[other])
        assert everything(others[other]) == before


def test_rows_of_another_profile(tmp_path, monkeypatch):
    def run(folder: Path, points: int = 32) -> ProfileRun:
        fno = {"FNO": {"model": {"name": "fno", "width": 4, "depth": 1, "modes": 4}}}
        content = {"name": "p", "summary": "", "points": points, "batch": 1, "operators": fno}
        return ProfileRun(Profile.parse(content, "p"), folder)

    def resume(folder: Path) -> Any:
        run(folder).run(CPU, resume=True)
        return rows_of(run(folder))

    monkeypatch.setattr(profile_module, "step_cost", lambda *arguments: Cost(1.0, 1, 1))
    monkeypatch.setattr(profile_module, "held_bytes", lambda *arguments: 1)
    for name, points in (("run", 32), ("points", 64)):
        run(tmp_path / name, points).run(CPU)
    write_profile_report(run(tmp_path / "run"), "pdegen benchmark p.toml")
    found = swaps(tmp_path / "run", {"points": tmp_path / "points"}, [resume], tmp_path)
    assert found["rows/0.json", "points"]["resume"] == "recomputed"
