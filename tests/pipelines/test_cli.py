"""Commands in this process: what they print, and what they refuse."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import zarr

from operators.training import fit
from pdegen.sampling.gaussian import PeriodicGaussianField
from pdegen.store.reading import Store
from pdegen.store.writing import missing
from pipelines.runs import evaluation
from pipelines.runs import folder as run_folder
from pipelines.runs.folder import is_url
from tests.pipelines.command import SMALL, everything, quietly
from tests.stores import faults, with_attributes

TINY = ["--set", "data.resolution=16", "--set", "model.modes=4", "--set", "model.width=8",
        "--set", "feedforward=8", "--set", "depth=1", "--set", "decoder_width=8",
        "--set", "batch=2", "--set", "epochs=1", "--set", "resolutions=[16]"]  # fmt: skip


@pytest.fixture(scope="module")
def made(burgers, tmp_path_factory):
    """A store, a store of several times and a run, to be read only."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(burgers, folder / "store.zarr")
    quietly("generate", "burgers-trajectory", *SMALL, "--set", "times=[0.1, 0.2]",
            "--out", folder / "times.zarr")  # fmt: skip
    quietly("train", "burgers-quick", "--data", folder / "store.zarr", *TINY,
            "--out", folder / "run")  # fmt: skip
    return folder


@pytest.fixture
def store(made, tmp_path):
    return shutil.copytree(made / "store.zarr", tmp_path / "store.zarr")


def unseal(store):
    with_attributes(Store(str(store)), sealed=False)
    (store / "records/000001.json").unlink()


def cut(store):
    path = store / "u/c/0/0"
    path.write_bytes(path.read_bytes()[:-9])


# what is right


def test_generate_prints_the_store_alone(pdegen, tmp_path):
    outcome = pdegen("generate", "burgers-quick", *SMALL, "--out", "s.zarr", "--workers", "1")
    assert (outcome.status, outcome.out) == (0, ["s.zarr"]), outcome.err
    assert "shards: 3/3" in outcome.err[-3]
    assert faults("s.zarr") == []


def test_a_store_without_a_name_is_kept_by_its_fingerprint(pdegen):
    outcome = pdegen("generate", "burgers-quick", *SMALL)
    (path,) = outcome.out
    fingerprint = Store(path).raw_attributes["fingerprint"]
    assert path == f"data/burgers-quick-{fingerprint[:12]}.zarr"


def test_overwrite_and_resume_are_as_asked(pdegen, store):
    words = ["generate", "burgers-quick", *SMALL, "--out", store]
    created = Store(str(store)).raw_attributes["provenance"]
    assert pdegen(*words, "--resume").status == 0
    assert Store(str(store)).raw_attributes["provenance"] == created
    unseal(store)
    assert pdegen(*words, "--resume").status == 0
    assert faults(str(store)) == []
    assert pdegen(*words, "--set", "seed=1", "--overwrite").status == 0
    assert Store(str(store)).raw_attributes["recipe"]["seed"] == 1


def test_info_says_what_a_store_holds(pdegen, made):
    text = "\n".join(pdegen("info", made / "store.zarr").out)
    for part in ("sealed, fingerprint", "u_t + u u_x = viscosity u_xx", "(12, 32) float32",
                 "train       samples 0 to 7", "test        samples 10 to 11", "training mean",
                 '"viscosity": 0.0159', '"numpy"'):  # fmt: skip
        assert part in text


def test_generate_and_info_state_the_label_error(pdegen, made):
    generated = pdegen("generate", "burgers-quick", "--samples", 4, "--out", made / "again.zarr")
    stated = "median 2.5e-08, largest 2.5e-08 in relative L2 of 4 samples (the solver's estimates)"
    assert f"label error: {stated}" in generated.err
    shown = pdegen("info", made / "again.zarr")
    assert f"label error {stated}" in shown.out
    assert not any("label errors exceed" in line for line in shown.err)
    held = json.loads("\n".join(pdegen("info", made / "again.zarr", "--json").out))
    assert held["label_error"]["largest"] == pytest.approx(2.53e-8, rel=1e-3)


def test_labels_with_errors_above_half_a_percent_are_warned_of(pdegen, tmp_path):
    words = ("--samples", 3, "--resolution", 12, "--out", tmp_path / "sheets.zarr")
    for outcome in (pdegen("generate", "elasticity-quick", *words), pdegen("info", words[-1])):
        (warning,) = [line for line in outcome.err if "label errors" in line]
        assert warning.startswith("pdegen: warning: 3 of 3 label errors exceed 0.5%: ")


def test_a_store_without_errors_says_so(pdegen, tmp_path):
    words = ("--samples", 3, "--resolution", 64, "--out", tmp_path / "tubes.zarr")
    assert "label error: none is stated" in pdegen("generate", "shock-tube-quick", *words).err
    held = json.loads("\n".join(pdegen("info", words[-1], "--json").out))
    assert held["label_error"] is None


def test_verify_names_every_fault(pdegen, store):
    cut(store)
    (store / "error/c/2").unlink()
    outcome = pdegen("verify", store)
    assert outcome.status == 1
    assert [line.partition(": ")[2] for line in outcome.err] == [
        "u, shard 0: the data differ from the recorded digest",
        "error, shard 2: the data are missing",
        f"{store} has 2 faults",
    ]


def test_evaluate_prints_and_writes_the_scores(pdegen, made):
    words = ["evaluate", made / "run/best.safetensors", "--data", made / "store.zarr"]
    outcome = pdegen(*words, "--resolution", "16", "--out", "scores.json")
    assert outcome.status == 0
    assert "on test at n=16, 2 samples: relative L2 error: mean" in outcome.out[0]
    scores = json.loads(Path("scores.json").read_text())
    assert (scores["first_sample"], scores["samples"], len(scores["errors"])) == (10, 2, 2)
    again = pdegen(*words, "--resolution", "16", "--out", "again.json")
    assert json.loads(Path("again.json").read_text())["errors"] == scores["errors"]
    assert again.out == outcome.out


# wrong requests: status 2, one line, nothing written


def test_what_is_there_is_kept_unless_it_is_said(refused, store):
    words = ["generate", "burgers-quick", *SMALL, "--out", store]
    assert "exists and is finished: use it, or --overwrite to replace it" in refused(*words)
    for command in ("train", "run"):
        other = [command, "burgers-quick", "--data", store, "--set", "data.overrides.viscosity=0.5"]
        said = "leave out data.recipe and data.overrides, or leave out --data"
        assert said in refused(*other)
    unseal(store)
    assert "was made from another recipe" in refused(*words, "--set", "seed=1", "--resume")


def test_results_are_not_written_to_a_url(refused, store, tmp_path):
    """Paths keep a single slash of `s3://`, so the folder would be a local one of that name."""
    for words in (["run", "burgers-quick", "--data", store], ["benchmark", "quick"]):
        assert "to a local folder, not to a URL" in refused(*words, "--out", "s3://data/results")
    assert not Path("s3:").exists()
    assert [is_url(Path(p)) for p in ("s3://b/x", "file:///x")] == [True, True]
    assert [is_url(Path(p)) for p in ("c:/x", "runs/a:/b", "/s3:/x", "a:b", "x")] == [False] * 5


READERS = (
    ["plot"], ["train", "burgers-quick", *TINY, "--data"],
    ["evaluate", "CHECKPOINT", "--split", "train", "--data"],
)  # fmt: skip


def requested(made, words):
    """The words with the checkpoint of the run."""
    return [made / "run/best.safetensors" if word == "CHECKPOINT" else word for word in words]


@pytest.mark.parametrize("kind", ["folder", "file", "group"])
def test_a_path_that_is_no_store_is_left_alone(refused, made, tmp_path, kind):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    elif kind == "file":
        path.write_text("mine")
    else:
        zarr.create_group(str(path)).create_array("a", shape=(3,), dtype="float32")
    generate = ["generate", "burgers-quick", *SMALL]
    for words in (
        [*generate, "--out"], [*generate, "--overwrite", "--out"], [*generate, "--resume", "--out"],
        ["info"], ["verify"], *READERS,
    ):  # fmt: skip
        line = refused(*requested(made, words), path)
        assert str(path) in line
        assert "store" in line


def test_an_unsealed_store_is_refused_with_the_way_to_finish_it(refused, made, store):
    unseal(store)
    for words in (["verify"], ["run", "burgers-quick", *TINY, "--data"], *READERS):
        line = refused(*requested(made, words), store)
        assert "not sealed" in line
        assert "--resume" in line


@pytest.mark.parametrize("damage", ["cut", "missing", "metadata"])
def test_a_damaged_store_is_refused(refused, pdegen, made, store, damage):
    if damage == "cut":
        cut(store)
    elif damage == "missing":
        (store / "u/c/0/0").unlink()
    else:
        path = store / "zarr.json"
        path.write_text(path.read_text()[:300])
        assert "the metadata are damaged" in refused("info", store)
        outcome = pdegen("verify", store)
        assert outcome.status == 1
        assert outcome.err[0] == f"{store}: zarr.json: differs from the seal"
    for words in READERS:
        line = refused(*requested(made, words), store)
        assert str(store) in line
        assert "damaged" in line


def test_what_a_checkpoint_cannot_do_is_refused(refused, made, tmp_path):
    whole = (made / "run/best.safetensors").read_bytes()
    data = ["--data", made / "store.zarr"]
    for content, said in (b"no checkpoint", "is not a checkpoint"), (whole[:-900], "is damaged"):
        (tmp_path / "x.safetensors").write_bytes(content)
        assert said in refused("evaluate", "x.safetensors", *data)
    words = ["evaluate", made / "run/best.safetensors", *data]
    assert "known are train, validation, test" in refused(*words, "--split", "tset")
    assert "is not a subsample of the 32 periodic points" in refused(*words, "--resolution", "10")
    assert "4 modes need a grid of at least 8 points" in refused(*words, "--resolution", "4")
    other = [*words[:2], "--data", made / "times.zarr"]
    assert "(1, 1, 1), the data (1, 2, 1)" in refused(*other)


def test_a_grid_too_coarse_for_the_model_is_refused(refused, made):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", "run"]
    for own, said in (
        ("model.modes=16", "at least 32 points, got 16"),
        ("data.resolution=64", "data.resolution: resolution 64 is not a subsample of the 32"),
        ("data.resolution=64", "needs --set data.resolution=32 --set 'resolutions=[32]'"),
        ("batch=9", "batch 9 is larger than the 8 training samples"),
    ):
        assert said in refused(*words, "--set", own)


def test_a_run_that_exists_asks_what_to_do(refused, made, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    words = ["train", "burgers-quick", "--data", made / "store.zarr", "--out", "run", *TINY]
    assert "use --resume to continue or --overwrite" in refused(*words)
    assert "a run with another experiment" in refused(*words, "--set", "lr=0.5", "--resume")
    other = [made / "times.zarr" if word == made / "store.zarr" else word for word in words]
    assert "a run with another data" in refused(*other, "--resume")


def test_a_folder_that_is_no_run_is_left_alone(refused, made, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", "mine"]
    assert "is no run folder" in refused(*words)
    assert "is no run folder" in refused(*words, "--overwrite")
    assert "mine" in refused("report", "mine")


def test_a_place_below_a_file_is_refused(refused, made, tmp_path):
    (tmp_path / "file").write_text("mine")
    data = ["--data", made / "store.zarr"]
    for words in (
        ["generate", "burgers-quick", *SMALL, "--out", "file/store.zarr"],
        ["train", "burgers-quick", *data, *TINY, "--out", "file/run"],
        ["evaluate", made / "run/best.safetensors", *data, "--out", "file/scores.json"],
    ):
        assert words[-1].split("/")[0] in refused(*words)


@pytest.fixture
def disk(tmp_path):
    """A file system of a quarter of a megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system needs root: mount -t tmpfs -o size=256k tmpfs FOLDER")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_disk_without_room_is_refused_before_anything_is_written(refused, made, disk):
    line = refused("generate", "burgers-quick", "--out", disk / "s.zarr")
    assert "no room: the store may take 1,315,840 bytes" in line
    words = ["train", "burgers-quick", "--data", made / "store.zarr", "--set", "batch=4"]
    words += ["--set", "data.resolution=32", "--set", "resolutions=[32]", "--set", "epochs=1"]
    line = refused(*words, "--out", disk / "deep/run")
    assert "no room: checkpoints and history of the training need" in line
    assert line.endswith("262,144 are free")
    assert list(disk.iterdir()) == []


def test_a_disk_that_fills_up_ends_a_training_in_one_line(pdegen, made, disk, monkeypatch):
    monkeypatch.setattr(run_folder, "check_room", lambda *asked: None)  # others fill it afterwards
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", disk / "run"]
    (disk / "others").write_bytes(bytes(200 * 1024))
    outcome = pdegen(*words)
    assert outcome.status == 1
    assert outcome.err[-1].startswith(f"pdegen: {disk / 'run'}")
    assert outcome.err[-1].endswith("no space left on device")
    assert not any("Traceback" in line for line in outcome.err)
    (disk / "others").unlink()
    assert pdegen(*words, "--resume").status == 0


def test_a_folder_with_files_in_the_place_of_a_shard_is_named(pdegen, store):
    folder = Path(store) / "u/c/0/0"
    folder.unlink()
    folder.mkdir()
    (folder / "notes").write_text("mine", "utf-8")
    outcome = pdegen("generate", "burgers-quick", *SMALL, "--out", store, "--resume")
    assert outcome.status == 2
    (line,) = outcome.err
    expected = "holds files that are not of a store: u/c/0/0/notes; nothing was deleted"
    assert expected in line
    assert (folder / "notes").read_text("utf-8") == "mine"


def test_a_disk_that_fills_up_leaves_a_store_to_resume(pdegen, disk):
    # little data, but 4 files of at least a page of 4096 bytes for every sample
    words = ["generate", "burgers-quick", *SMALL[2:], "--samples", "30", "--set", "shard=1",
             "--out", disk / "s.zarr", "--workers", "1"]  # fmt: skip
    outcome = pdegen(*words)
    assert outcome.status == 1
    (line,) = outcome.err
    assert "no space left on device" in line
    store = Store(str(disk / "s.zarr"))
    assert not store.sealed
    assert 0 < len(missing(store)) < 30
    subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
    assert pdegen(*words, "--resume").status == 0
    assert faults(str(disk / "s.zarr")) == []


# jobs that fail: status 1


def test_a_sample_that_fails_is_named_and_the_rest_is_kept_or_skipped(pdegen, monkeypatch):
    field = PeriodicGaussianField.__call__

    def broken(self, grid, seed, samples, device):
        u0 = field(self, grid, seed, samples, device)
        u0[[i for i, sample in enumerate(samples) if sample == 7]] = float("nan")
        return u0

    words = ["generate", "burgers-quick", *SMALL, "--workers", "1", "--out"]
    with monkeypatch.context() as patch:
        patch.setattr(PeriodicGaussianField, "__call__", broken)
        outcome = pdegen(*words, "s.zarr")
        assert pdegen(*words, "skipped.zarr", "--skip-failed").status == 0
    assert outcome.status == 1
    assert outcome.err[-1].startswith("pdegen: sample 7: ")
    assert "will fail again: --resume --skip-failed leaves the sample out" in outcome.err[-2]
    assert "--set solver.resolution=..." in outcome.err[-2]
    assert not any("Traceback" in line for line in outcome.err)
    lost = missing(Store("s.zarr"))
    assert 1 in lost
    assert 0 not in lost  # shard 2 may have been begun before shard 1 failed
    assert pdegen(*words, "s.zarr", "--resume").status == 0
    assert Store("skipped.zarr").skipped == [7]
    assert "skipped     samples 7" in pdegen("info", "skipped.zarr").out


def test_training_that_diverges_says_so(pdegen, made):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", "run"]
    outcome = pdegen(*words, "--set", "epochs=20", "--set", "lr=1e30", "--set", "clip=1e30")
    assert outcome.status == 1
    assert outcome.err[-1].startswith("pdegen: the loss is not finite in epoch ")


def test_a_training_that_fails_in_its_first_epoch_leaves_nothing(pdegen, made, monkeypatch):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", "runs/r"]
    diverging = ["--set", "lr=1e30", "--set", "clip=1e30", "--set", "epochs=2"]
    for track in ([], ["--track", "tensorboard"]):
        for _ in range(2):  # the second start is not refused
            outcome = pdegen(*words, *diverging, "--set", "batch=1", *track)
            assert outcome.status == 1
            assert outcome.err[-1].startswith("pdegen: the loss is not finite in epoch 1")
            assert not Path("runs/r").exists()
    assert pdegen(*words, "--set", "epochs=1").status == 0
    kept = everything(Path("runs/r"))
    original = fit._State.end_epoch

    def fails(state, loss, errors):
        if len(state.history) == 1:
            raise fit.TrainingError("by hand")
        return original(state, loss, errors)

    monkeypatch.setattr(fit._State, "end_epoch", fails)
    outcome = pdegen(*words, "--set", "epochs=2", "--overwrite")
    assert outcome.err[-1] == "pdegen: by hand"
    assert everything(Path("runs/r")).keys() == kept.keys()  # the first epoch is kept


def test_a_loss_that_float32_cannot_hold_is_refused_in_one_line(pdegen, made):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", "run"]
    for name, key, value, message in (
        ("huber", "delta", 1e-320, "delta must be 0, or between 1.2e-38 and 3.4e+38"),
        ("huber", "delta", 1e39, "delta must be 0, or between 1.2e-38 and 3.4e+38"),
        ("squared-h1", "gamma", 3e38, "the loss squared-h1 is inf before the training"),
    ):
        outcome = pdegen(*words, "--set", f"loss.name={name}", "--set", f"loss.{key}={value}")
        assert outcome.status == 2
        assert len(outcome.err) == 1
        assert message in outcome.err[0]
        assert not Path("run").exists()


def test_debug_shows_where_it_went_wrong(pdegen):
    outcome = pdegen("--debug", "generate", "burgers-quik")
    assert outcome.status == 2
    assert outcome.err[0].startswith("Traceback")
    assert "unknown recipe 'burgers-quik'" in outcome.err[-1]


def test_a_bug_is_not_passed_off_as_a_wrong_request(pdegen, made, monkeypatch):
    def bug(*arguments, **options):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(evaluation, "evaluate", bug)
    outcome = pdegen("evaluate", made / "run/best.safetensors", "--data", made / "store.zarr")
    assert outcome.status == 1
    assert outcome.err[0].startswith("Traceback")
