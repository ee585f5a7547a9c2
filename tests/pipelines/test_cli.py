import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import zarr

from pdegen.recipe import recipe_names
from pdegen.sampling.gaussian import PeriodicGaussianField
from pdegen.store.checking import missing
from pdegen.store.reading import Store
from pipelines.cli import stores
from pipelines.runs import evaluation, run_folder
from tests.pipelines.command import SMALL, history, quietly
from tests.stores import faults, objects_of, with_attributes

CONSOLE = Path(sys.executable).parent / "pdegen"

TINY = ["--set", "data.resolution=16", "--set", "model.modes=4", "--set", "model.width=8",
        "--set", "feedforward=8", "--set", "depth=1", "--set", "decoder_width=8",
        "--set", "batch=2", "--set", "epochs=1", "--set", "resolutions=[16]"]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store, a store of several times and a run, to be read only."""
    folder = tmp_path_factory.mktemp("made")
    quietly("generate", "burgers-quick", *SMALL, "--out", folder / "store.zarr")
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


def test_recipes_lists_all_recipes(pdegen):
    outcome = pdegen("recipes")
    assert outcome.status == 0
    names = {line.split()[0] for line in outcome.out if line.startswith("  ")}
    assert names == {*recipe_names()}
    (r10,) = (line for line in outcome.out if line.startswith("  burgers-r10 "))
    assert "2048 x 8192" in r10
    assert "134.2 MB" in r10  # 2 arrays of 2048 x 8192 x 4 bytes


def test_generate_prints_the_store_alone(pdegen, tmp_path):
    outcome = pdegen("generate", "burgers-quick", *SMALL, "--out", "s.zarr", "--workers", "1")
    assert (outcome.status, outcome.out) == (0, ["s.zarr"]), outcome.err
    assert "shards: 3/3" in outcome.err[-2]
    assert faults("s.zarr") == []


def test_a_store_without_a_name_is_kept_by_its_fingerprint(pdegen):
    outcome = pdegen("generate", "burgers-quick", *SMALL)
    (path,) = outcome.out
    fingerprint = Store(path).attributes["fingerprint"]
    assert path == f"data/burgers-quick-{fingerprint[:12]}.zarr"


def test_overwrite_and_resume_are_as_asked(pdegen, store):
    words = ["generate", "burgers-quick", *SMALL, "--out", store]
    created = Store(str(store)).attributes["provenance"]
    assert pdegen(*words, "--resume").status == 0
    assert Store(str(store)).attributes["provenance"] == created
    unseal(store)
    assert pdegen(*words, "--resume").status == 0
    assert faults(str(store)) == []
    assert pdegen(*words, "--set", "seed=1", "--overwrite").status == 0
    assert Store(str(store)).attributes["recipe"]["seed"] == 1


def test_info_says_what_a_store_holds(pdegen, made):
    text = "\n".join(pdegen("info", made / "store.zarr").out)
    for part in ("sealed, fingerprint", "u_t + u u_x = viscosity u_xx", "(12, 32) float32",
                 "train       samples 0 to 7", "test        samples 10 to 11", "training mean",
                 '"viscosity": 0.0159', '"numpy"'):  # fmt: skip
        assert part in text


def test_info_says_that_a_store_is_not_sealed(pdegen, store):
    unseal(store)
    outcome = pdegen("info", store)
    assert outcome.status == 0
    assert "not sealed (pdegen generate ... --resume finishes it)" in outcome.out[1]


def test_verify_passes_a_sound_store(pdegen, made):
    outcome = pdegen("verify", made / "store.zarr")
    assert (outcome.status, outcome.err) == (0, [])
    assert outcome.out == [f"{made / 'store.zarr'}: verified"]


def test_verify_names_shard_and_variable_of_a_flipped_bit(pdegen, store):
    path = store / "a/c/1/0"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    outcome = pdegen("verify", store)
    assert (outcome.status, outcome.out) == (1, [])
    assert outcome.err == [
        f"{store}: a, shard 1: the data differ from the recorded digest",
        f"pdegen: {store} has 1 fault",
    ]


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
    assert "on test at n=16, 2 samples: relative L2 mean" in outcome.out[0]
    scores = json.loads(Path("scores.json").read_text())
    assert (scores["first_sample"], scores["samples"], len(scores["errors"])) == (10, 2, 2)
    again = pdegen(*words, "--resolution", "16", "--out", "again.json")
    assert json.loads(Path("again.json").read_text())["errors"] == scores["errors"]
    assert again.out == outcome.out


def test_a_model_trains_on_a_store_without_an_experiment(pdegen, made):
    outcome = pdegen("train", "--data", made / "store.zarr", "--model", "galerkin-transformer",
                     *TINY, "--out", "run")  # fmt: skip
    assert (outcome.status, outcome.out) == (0, ["run/best.safetensors"])


def test_without_words_it_shows_the_help(pdegen):
    alone, asked = pdegen(), pdegen("--help")
    assert alone.status == asked.status == 0
    assert alone.out == asked.out
    for command in ("recipes", "generate", "info", "verify", "plot", "train", "evaluate", "run",
                    "report"):  # fmt: skip
        assert any(line.strip().startswith(command) for line in alone.out), command


# wrong requests: status 2, one line, nothing written


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["generate", "burgers-quik"], ["unknown recipe 'burgers-quik'", "burgers-quick"]),
        (["generate", "mine.toml"], ["cannot read mine.toml"]),
        (["generate"], ["recipe"]),
        (["generat"], ["generat"]),
        (["generate", "burgers-quick", "--device", "tpu"], ["unknown device 'tpu'", "cpu, cuda"]),
        (["generate", "burgers-quick", "--device", "tpu", "--dry-run"], ["unknown device 'tpu'"]),
        (["generate", "darcy-421-published", "--device", "cuda"],
         ["problem.solver.method published-splines", "on the CPU alone", "use cpu"]),
        (["generate", "burgers-r10", "--sampels", "3"], ["--sampels"]),
        (["generate", "burgers-r10", "--samples", "x"], ["--samples"]),
        (["generate", "burgers-r10", "--samples", "0"], ["samples", "got 0"]),
        (["generate", "burgers-r10", "--samples", "-1"], ["samples", "got -1"]),
        (["generate", "burgers-r10", "--samples", "2"], ["splits need 3 samples"]),
        (["generate", "burgers-r10", "--workers", "0"], ["--workers"]),
        (["generate", "burgers-r10", "--scheduler", "treads"], ["'treads'", "threads, processes"]),
        (["generate", "burgers-r10", "--scheduler", "host:1:2"], ["unknown scheduler 'host:1:2'"]),
        (["generate", "burgers-r10", "--dry-run", "--scheduler", "x"], ["unknown scheduler 'x'"]),
        (["verify", "absent.zarr", "--samples", "0"], ["--samples"]),
        (["import", "absent.mat", "--out", "s.zarr"], ["absent.mat"]),
        (["import", "absent.mat", "--out", "s.zarr", "--grid", "square"], ["'square'", "nodal"]),
        (["import", "absent.mat", "--out", "s.zarr", "--split", "trian=3"], ["'trian'", "train"]),
        (["import", "absent.mat", "--out", "s.zarr", "--split", "train=0"], ["train", "got 0"]),
        (["import", "absent.mat", "--out", "s.zarr", "--split", "train=4", "--split", "train=5"],
         ["each split once"]),
        (["export", "absent.zarr", "--format", "mat", "--out", "x.mat"], ["absent.zarr"]),
        (["generate", "burgers-r10", "--resume", "--overwrite"], ["exclude each other"]),
        (["generate", "burgers-r10", "--resolution", "300"],
         ["must divide", "8192, near ones are 128, 256, got 300"]),
        (["generate", "burgers-r10", "--samples", "zehn"], ["'--samples'", "got zehn"]),
        (["generate", "burgers-r10", "--set", "viscositi=1"], ["did you mean problem.viscosity?"]),
        (["generate", "burgers-r10", "--set", "viscosity"], ["KEY=VALUE", "'viscosity'"]),
        (["generate", "burgers-r10", "--set", "viscosity=-1"], ["problem.viscosity", "got -1"]),
        (["generate", "burgers-r10", "--set", "viscosity=0"], ["problem.viscosity", "got 0"]),
        (["generate", "burgers-r10", "--set", "viscosity=nan"], ["viscosity: must be a number"]),
        (["generate", "burgers-r10", "--set", "viscosity=low"], ["problem.viscosity", "'low'"]),
        (["generate", "burgers-r10", "--set", "problem.solver.resolution=4096",
          "--resolution", "512"], ["initial.modes = 4095", "solver.resolution >= 8192", "4096"]),
        (["generate", "burgers-r10", "--set", "method=etdrk"], ["unknown 'etdrk'", "etdrk4"]),
        (["generate", "burgers-r10", "--set", "dt=0.1"], ["dt", "cole-hopf"]),
        (["generate", "plasticity-quick", "--set", "gap=6"], ["below 5.7", "misses the block"]),
        (["info", "absent.zarr"], ["absent.zarr: no such store"]),
        (["generate", "burgers-quick", "--out", "a::b.zarr"], ["store has no '::'"]),
        (["verify", "simplecache::s3://bucket/a.zarr"], ["store has no '::'"]),
        (["train", "burgers-quick", "--data", "a::b.zarr"], ["store has no '::'"]),
        (["verify", "absent.zarr"], ["absent.zarr: no such store"]),
        (["plot", "absent.zarr"], ["absent.zarr: no such store"]),
        (["train", "burgers-quik"], ["unknown experiment 'burgers-quik'", "burgers-quick"]),
        (["train"], ["name an experiment"]),
        (["train", "--model", "galerkin-transformer"], ["--data STORE"]),
        (["train", "burgers-quick", "--set", "widht=3"], ["'widht'", "model.width"]),
        (["train", "burgers-quick", "--set", "lr=-1"], ["training.lr", "got -1"]),
        (["train", "burgers-quick", "--set", "normalization.eps=0.1"],
         ["normalization: eps is of pointwise scaling"]),
        (["train", "burgers-quick", "--set", "heads=7"], ["heads must divide width", "7"]),
        (["train", "burgers-quick", "--set", "attention=galerkn"], ["model.attention", "galerkn"]),
        (["train", "burgers-quick", "--data", "absent.zarr"], ["absent.zarr"]),
        (["run", "burgers-quik"], ["unknown experiment 'burgers-quik'", "burgers-quick"]),
        (["run", "burgers-quick", "--device", "tpu"], ["unknown device 'tpu'", "cpu, cuda"]),
        (["report", "absent"], ["absent"]),
        (["evaluate", "absent.safetensors", "--data", "absent.zarr"], ["absent.safetensors"]),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_in_one_line(refused, words, parts):
    line = refused(*words)
    for part in parts:
        assert part in line


def test_an_unknown_model_names_the_near_ones(refused, made):
    line = refused("train", "--data", made / "store.zarr", "--model", "galerkin-transformr")
    assert "unknown model 'galerkin-transformr': did you mean galerkin-transformer or" in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_refused(refused, made):
    words = ["--data", made / "store.zarr", *TINY, "--device", "cuda"]
    assert "finds none here: use cpu" in refused("train", "burgers-quick", *words)


@pytest.mark.parametrize("recipe", ["burgers-quick", "darcy-quick"])
def test_nothing_is_generated_on_a_device_that_is_not_there(refused, recipe, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refused("generate", recipe, "--device", "cuda", "--out", "s.zarr")
    assert "device cuda was asked for, but PyTorch finds none here: use cpu" in line


def test_a_store_that_exists_asks_what_to_do(refused, store):
    line = refused("generate", "burgers-quick", *SMALL, "--out", store)
    assert "exists and is finished: use it, or --overwrite to replace it" in line


def test_keys_of_the_recipe_are_refused_beside_a_store_of_another(refused, store):
    for words in (["train", "burgers-quick"], ["run", "burgers-quick"]):
        line = refused(*words, "--data", store, "--set", "data.overrides.viscosity=0.5")
        assert "data.overrides change what is generated, leave them or --data out" in line


def test_a_store_of_another_recipe_is_not_resumed(refused, store):
    unseal(store)
    line = refused("generate", "burgers-quick", *SMALL, "--set", "seed=1", "--out", store,
                   "--resume")  # fmt: skip
    assert "was made from another recipe" in line


@pytest.mark.parametrize("kind", ["folder", "file", "group"])
@pytest.mark.parametrize(
    "words",
    [
        ["generate", "burgers-quick", *SMALL, "--out"],
        ["generate", "burgers-quick", *SMALL, "--overwrite", "--out"],
        ["generate", "burgers-quick", *SMALL, "--resume", "--out"],
        ["info"],
        ["verify"],
        ["plot"],
        ["train", "burgers-quick", *TINY, "--data"],
        ["evaluate", "CHECKPOINT", "--data"],
    ],
    ids=lambda words: words[0] + "-" + words[-2 if words[0] == "generate" else -1].strip("-"),
)
def test_a_path_that_is_no_store_is_left_alone(refused, made, tmp_path, kind, words):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    elif kind == "file":
        path.write_text("mine")
    else:
        zarr.create_group(str(path)).create_array("a", shape=(3,), dtype="float32")
    words = [made / "run/best.safetensors" if word == "CHECKPOINT" else word for word in words]
    line = refused(*words, path)
    assert str(path) in line
    assert "store" in line


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["plot"],
        ["train", "burgers-quick", *TINY, "--data"],
        ["train", "--model", "galerkin-transformer", *TINY, "--data"],
        ["run", "burgers-quick", *TINY, "--data"],
        ["evaluate", "CHECKPOINT", "--data"],
    ],
    ids=["verify", "plot", "train", "train-model", "run", "evaluate"],
)
def test_an_unsealed_store_is_refused_with_the_way_to_finish_it(refused, made, store, words):
    unseal(store)
    words = [made / "run/best.safetensors" if word == "CHECKPOINT" else word for word in words]
    line = refused(*words, store)
    assert "not sealed" in line
    assert "--resume" in line


@pytest.mark.parametrize("damage", ["cut", "missing", "metadata"])
@pytest.mark.parametrize(
    "words",
    [
        ["plot", "--sample", "1"],
        ["train", "burgers-quick", *TINY, "--data"],
        ["evaluate", "CHECKPOINT", "--split", "train", "--data"],
    ],
    ids=["plot", "train", "evaluate"],
)
def test_a_truncated_store_is_refused(refused, made, store, words, damage):
    if damage == "cut":
        cut(store)
    elif damage == "missing":
        (store / "u/c/0/0").unlink()
    else:
        path = store / "zarr.json"
        path.write_text(path.read_text()[:300])
    words = [made / "run/best.safetensors" if word == "CHECKPOINT" else word for word in words]
    line = refused(*words, store)
    assert str(store) in line
    assert "damaged" in line


def test_truncated_metadata_are_refused_and_named(refused, pdegen, store):
    path = store / "zarr.json"
    path.write_text(path.read_text()[:300])
    assert "the metadata are damaged" in refused("info", store)
    outcome = pdegen("verify", store)
    assert outcome.status == 1
    assert outcome.err[0] == f"{store}: zarr.json: differs from the seal"


def test_a_checkpoint_of_another_data_shape_is_refused(refused, made):
    line = refused("evaluate", made / "run/best.safetensors", "--data", made / "times.zarr")
    assert "(1, 1, 1), the data (1, 2, 1)" in line


def test_a_file_that_is_no_checkpoint_is_refused(refused, made, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"no checkpoint")
    line = refused("evaluate", "x.safetensors", "--data", made / "store.zarr")
    assert "is not a checkpoint" in line


def test_a_cut_checkpoint_is_refused(refused, made, tmp_path):
    whole = (made / "run/best.safetensors").read_bytes()
    (tmp_path / "x.safetensors").write_bytes(whole[: len(whole) // 2])
    line = refused("evaluate", "x.safetensors", "--data", made / "store.zarr")
    assert "is damaged" in line


def test_an_unknown_split_and_resolution_are_refused(refused, made):
    words = ["evaluate", made / "run/best.safetensors", "--data", made / "store.zarr"]
    assert "known are train, validation, test" in refused(*words, "--split", "tset")
    assert "no subsample of the 32 periodic points" in refused(*words, "--resolution", "10")
    assert "4 modes need a grid of at least 8 points" in refused(*words, "--resolution", "4")


def test_a_grid_too_coarse_for_the_model_is_refused(refused, made):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", "run"]
    assert "at least 32 points, got 16" in refused(*words, "--set", "model.modes=16")
    assert "no subsample of the 32 periodic points" in refused(
        *words, "--set", "data.resolution=64"
    )
    assert "batch 9 is larger than the 8 samples" in refused(*words, "--set", "batch=9")


def test_a_run_that_exists_asks_what_to_do(refused, made, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    words = ["train", "burgers-quick", "--data", made / "store.zarr", "--out", "run", *TINY]
    assert "use --resume to continue or --overwrite" in refused(*words)
    assert "a run of another experiment" in refused(*words, "--set", "lr=0.5", "--resume")
    other = [made / "times.zarr" if word == made / "store.zarr" else word for word in words]
    assert "a run of another data" in refused(*other, "--resume")


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


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_a_place_that_cannot_be_written_is_refused(refused):
    assert "/proc/nowhere" in refused(
        "generate", "burgers-quick", *SMALL, "--out", "/proc/nowhere/s"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_is_refused(refused, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "locked" in refused("generate", "burgers-quick", *SMALL, "--out", "locked/s.zarr")


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


def test_a_disk_without_room_is_refused_before_anything_is_written(refused, disk):
    line = refused("generate", "burgers-quick", "--out", disk / "s.zarr")
    assert "no room: the store may take 1,315,840 bytes" in line
    assert list(disk.iterdir()) == []


def test_a_disk_without_room_for_a_training_is_refused_before_it_starts(refused, made, disk):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", "--set", "batch=4"]
    words += ["--set", "data.resolution=32", "--set", "resolutions=[32]", "--set", "epochs=1"]
    line = refused(*words, "--out", disk / "deep/run")
    assert "no room: checkpoints and history of the training take" in line
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
    assert "holds what is not of a store: u/c/0/0/notes; nothing was deleted: move it away" in line
    assert (folder / "notes").read_text("utf-8") == "mine"


def test_a_disk_that_fills_up_leaves_a_store_to_resume(pdegen, disk):
    # little data, but 4 files of at least a page of 4096 bytes for every sample
    words = ["generate", "burgers-quick", *SMALL, "--samples", "30", "--set", "shard=1",
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


def test_a_sample_that_fails_is_named_and_the_rest_is_kept(pdegen, tmp_path, monkeypatch):
    field = PeriodicGaussianField.__call__

    def broken(self, grid, seed, samples, device):
        u0 = field(self, grid, seed, samples, device)
        u0[[i for i, sample in enumerate(samples) if sample == 7]] = float("nan")
        return u0

    words = ["generate", "burgers-quick", *SMALL, "--out", "s.zarr", "--workers", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(PeriodicGaussianField, "__call__", broken)
        outcome = pdegen(*words)
    assert outcome.status == 1
    assert outcome.err[-1].startswith("pdegen: sample 7: ")
    assert "fails at each --resume: --resume --skip-failed leaves it out" in outcome.err[-2]
    assert "--set solver.resolution=..." in outcome.err[-2]
    assert not any("Traceback" in line for line in outcome.err)
    lost = missing(Store("s.zarr"))
    assert 1 in lost
    assert 0 not in lost  # shard 2 may have been begun before shard 1 failed
    assert pdegen(*words, "--resume").status == 0


def test_training_that_diverges_says_so(pdegen, made):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, "--out", "run"]
    outcome = pdegen(*words, "--set", "epochs=20", "--set", "lr=1e30", "--set", "clip=1e30")
    assert outcome.status == 1
    assert outcome.err[-1].startswith("pdegen: the loss is not finite in epoch ")


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


# the real console script, and Ctrl-C


def start(*words, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [str(CONSOLE), *map(str, words)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def interrupt(process, ready, seconds=120, by=signal.SIGINT):
    """Send Ctrl-C, or another signal, as soon as `ready()`; returns the status and stderr."""
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(by)
    _, err = process.communicate(timeout=seconds)
    return process.returncode, err


def test_the_console_script_refuses_in_one_line(tmp_path):
    process = start("generate", "burgers-quik", cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("pdegen: unknown recipe 'burgers-quik'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unchecked")  # the checks would take most of the time
def test_interrupted_generation_is_resumed_to_the_same_bytes(pdegen, tmp_path):
    slow = ["generate", "burgers-quick", *SMALL, "--samples", "40", "--set", "shard=2",
            "--set", "method=etdrk4", "--set", "dt=1e-4", "--set", "tolerance=1.0"]  # fmt: skip
    out = tmp_path / "s.zarr"
    process = start(*slow, "--out", out, cwd=tmp_path)
    status, err = interrupt(process, lambda: len(list((out / "records").glob("*.json"))) >= 2)
    assert status == 130
    assert "Traceback" not in err
    assert f"finished shards are kept in {out}: continue with --resume" in err
    store = Store(str(out))
    assert not store.sealed
    assert 0 < len(missing(store)) < 20
    assert pdegen(*slow, "--out", out, "--resume").status == 0
    assert pdegen(*slow, "--out", "uninterrupted.zarr").status == 0
    assert faults(str(out)) == []
    assert objects_of(store) == objects_of(Store("uninterrupted.zarr"))
    contents = [Store(url).attributes["content"] for url in (str(out), "uninterrupted.zarr")]
    assert contents[0] == contents[1]


def test_an_interrupt_that_python_ignores_ends_generation_all_the_same(
    pdegen, tmp_path, monkeypatch
):
    def lost(self, *done):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(stores.Reporter, "__call__", lost)
    words = ["generate", "burgers-quick", *SMALL, "--samples", "40", "--set", "shard=10"]
    outcome = pdegen(*words, "--out", tmp_path / "s.zarr")
    assert outcome.status == 130
    assert not Store(str(tmp_path / "s.zarr")).sealed


STREAM = ["--stream", "burgers-quick", "--set", "data.stream.overrides.resolution=32",
          "--set", "data.stream.overrides.modes=31",
          "--set", "data.stream.overrides.solver.resolution=64"]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("by", "stream"), [(signal.SIGINT, []), (signal.SIGTERM, STREAM), (signal.SIGKILL, STREAM)]
)
def test_interrupted_training_is_resumed_to_the_same_bits(pdegen, made, tmp_path, by, stream):
    words = ["train", "burgers-quick", "--data", made / "store.zarr", *TINY, *stream,
             "--set", "epochs=30", "--set", "model.dropout=0.1"]  # fmt: skip
    lines = tmp_path / "run/history.jsonl"
    process = start(*words, "--out", tmp_path / "run", cwd=tmp_path)
    status, err = interrupt(
        process, lambda: lines.exists() and lines.read_text().count("\n") > 2, by=by
    )
    assert status == (-by if by == signal.SIGKILL else 130)
    assert "Traceback" not in err
    assert by == signal.SIGKILL or "continue with --resume" in err
    assert 2 < lines.read_text().count("\n") < 30
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the process that was interrupted
    try:
        assert pdegen(*words, "--out", "run", "--resume").status == 0
        assert pdegen(*words, "--out", "uninterrupted").status == 0
    finally:
        torch.set_num_threads(threads)
    for name in ("last", "best"):
        run, whole = (Path(f) / f"{name}.safetensors" for f in ("run", "uninterrupted"))
        assert run.read_bytes() == whole.read_bytes()
    run, whole = (history(Path(f)) for f in ("run", "uninterrupted"))
    assert len(run) == 30
    assert run == whole
