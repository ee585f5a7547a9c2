"""Every byte of a store is covered, and what is damaged is made again exactly."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pdegen.equations.base import SampleError
from pdegen.generation.derived import add_noise, at_levels
from pdegen.generation.generate import RecipeJob, generate, values_of
from pdegen.generation.verify import repair, verify
from pdegen.numerics.transforms import VECTORS
from pdegen.recipe import load_recipe
from pdegen.schema import SchemaError
from pdegen.store.format import sha256, with_digest
from pdegen.store.lock import LockedError, locked
from pdegen.store.reading import Record, Seal, StoreError
from pdegen.store.writing import seal
from tests.stores import (
    failing,
    faults,
    interrupted,
    objects_of,
    resealed,
    unseal,
    with_attributes,
    write_shard,
)


def change(store, key, data):
    (Path(store.url) / key).write_bytes(data)


def flipped(data, place, bit):
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


# damage


@pytest.mark.parametrize("flips", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_every_byte_of_every_object_is_covered(store, flips):
    """One flipped bit at random places, and at the ends of every object."""
    chance, sound = random.Random(0), objects_of(store)
    places = [(key, place) for key, data in sound.items() for place in (0, len(data) - 1)]
    chosen = chance.choices(list(sound), k=flips - len(places))  # small objects as often
    places += [(key, chance.randrange(len(sound[key]))) for key in chosen]
    for key, place in places:
        change(store, key, flipped(sound[key], place, chance.randrange(8)))
        assert verify(store.url, check_values=False).faults, f"byte {place} of {key}"
        change(store, key, sound[key])
    assert faults(store) == []


def test_every_object_is_repaired_and_the_rest_untouched(store):
    chance, sound = random.Random(1), objects_of(store)
    root = Path(store.url)
    for key, data in sound.items():
        change(store, key, flipped(data, chance.randrange(len(data)), chance.randrange(8)))
        before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
        result = repair(store.url)
        assert result.faults == [], key
        assert result.repaired == [key]
        assert objects_of(store) == sound, key
        touched = {
            str(path.relative_to(root))
            for path, time in before.items()
            if path.exists() and path.stat().st_mtime_ns != time
        }
        assert touched == {key}


def test_every_object_that_is_gone_is_made_again(store):
    sound = objects_of(store)
    for key in sound:
        (Path(store.url) / key).unlink()
        assert repair(store.url).repaired == [key]
        assert objects_of(store) == sound, key


def test_a_store_that_is_being_written_is_not_repaired(store):
    change(store, "u/c/0/0", b"")
    with (
        locked(store.objects, store.metadata.job),
        pytest.raises(LockedError, match="is being written"),
    ):
        repair(store.url)


def test_metadata_and_seal_that_are_both_lost_are_an_error(store):
    change(store, "zarr.json", b"{")
    change(store, Seal.KEY, b"{")
    with pytest.raises(StoreError, match="the metadata are damaged"):
        verify(store.url)


def test_what_this_software_makes_otherwise_is_not_written(store, monkeypatch):
    compute = RecipeJob.compute

    def other(self, there, samples):
        return {name: 2 * value for name, value in compute(self, there, samples).items()}

    change(store, "u/c/1/0", b"damaged")
    monkeypatch.setattr(RecipeJob, "compute", other)
    result = repair(store.url)
    assert [str(fault) for fault in result.faults] == [
        "u, shard 1: the data differ from the recorded digest"
    ]
    assert (Path(store.url) / "u/c/1/0").read_bytes() == b"damaged"


def test_a_store_with_noise_is_repaired_but_for_its_samples(finished, tmp_path):
    levels = at_levels({"kind": "relative", "seed": 0}, [0.0, 0.1])
    noisy = add_noise(finished.url, "u", levels, str(tmp_path / "noisy.zarr"))
    sound = objects_of(noisy)
    change(noisy, "u/zarr.json", b"{}")
    assert repair(noisy.url).repaired == ["u/zarr.json"]
    assert objects_of(noisy) == sound
    change(noisy, "u/c/0/0/0", b"")
    assert [str(fault) for fault in repair(noisy.url).faults] == [
        "u, shard 0: the data differ from the recorded digest"
    ]
    add_noise(finished.url, "u", levels, noisy.url, resume=True)
    assert objects_of(noisy) == sound


# again from the recipe


def test_samples_are_made_again_and_compared(finished):
    result = verify(finished.url, deep=5)
    assert result.faults == []
    assert len(set(result.recomputed)) == 5
    assert verify(finished.url, deep=1000).recomputed == list(range(12))


def test_a_store_with_other_numbers_and_right_digests_is_noticed_deep(small, store):
    values = {name: np.array(store.values(name)[5:10]) for name in store.variables}
    values["u"][2, 3] += np.float32(1e-6)
    unseal(store)
    write_shard(store, 1, values)
    seal(store)
    assert faults(store) == []
    found = verify(store.url, deep=12).faults
    assert [str(fault) for fault in found] == [
        "u, shard 1: sample 7 differs from its recomputed values"
    ]


def test_samples_by_other_fourier_transforms_are_compared_to_rounding(tmp_path, monkeypatch):
    recipe = load_recipe("ns-quick").with_overrides(
        {"samples": 4, "problem.resolution": 24, "problem.solver.resolution": 48, "times": [1.0]}
    )
    by_vectors = generate(recipe, str(tmp_path / "vectors.zarr"), workers=1)
    with monkeypatch.context() as patched:
        for module in ("semilinear", "transforms"):
            patched.setattr(f"pdegen.numerics.{module}.has_vectors", lambda points: False)
        by_scipy = generate(recipe, str(tmp_path / "scipy.zarr"), workers=1)
    assert by_vectors.raw_attributes["provenance"]["transforms"] == VECTORS
    assert "transforms" not in by_scipy.raw_attributes["provenance"]
    assert by_vectors.metadata.fingerprint == by_scipy.metadata.fingerprint
    names = by_vectors.variables
    assert any((by_vectors.values(name)[:] != by_scipy.values(name)[:]).any() for name in names)
    for store in (by_vectors, by_scipy):
        assert verify(store.url, deep=4).faults == []
    values = {name: np.array(by_scipy.values(name)[:]) for name in names}
    values["u"][2, 3, 4] += np.float32(1e-3)
    unseal(by_scipy)
    write_shard(by_scipy, 0, values)
    seal(by_scipy)
    assert [str(fault) for fault in verify(by_scipy.url, check_values=False, deep=4).faults] == [
        "u, shard 0: sample 2 differs from its recomputed values"
    ]


def test_other_transforms_of_the_finer_torus_alone_change_the_error(tmp_path, monkeypatch):
    """Compiled transforms of 28 points do not exist, but those of the 36 of the finer torus do."""
    recipe = load_recipe("fisher-kpp").with_overrides(
        {"samples": 4, "problem.resolution": 28, "problem.solver.resolution": 28, "modes": 3,
         "problem.solver.tolerance": 0.1, "dt": 0.05, "times": [0.2]}
    )  # fmt: skip
    with monkeypatch.context() as patched:
        for module in ("semilinear", "transforms"):
            patched.setattr(f"pdegen.numerics.{module}.has_vectors", lambda points: False)
        by_scipy = generate(recipe, str(tmp_path / "scipy.zarr"), workers=1)
    by_vectors = generate(recipe, str(tmp_path / "vectors.zarr"), workers=1)
    assert (by_scipy.values("u")[:] == by_vectors.values("u")[:]).all()
    assert (by_scipy.values("error")[:] != by_vectors.values("error")[:]).any()
    assert by_vectors.raw_attributes["provenance"]["transforms"] == VECTORS
    for store in (by_vectors, by_scipy):
        assert verify(store.url, check_values=False, deep=4).faults == []


def test_a_recipe_that_does_not_fit_the_store_is_an_error(store):
    store = resealed(with_attributes(store, fingerprint="0" * 64))
    recipe, *shards = faults(store)
    assert "does not have the store's fingerprint" in recipe
    assert shards == [
        f"shard {k}: records/00000{k}.json is the record of another job" for k in range(3)
    ]
    with pytest.raises(SchemaError, match="does not have the store's fingerprint"):
        verify(store.url, deep=1)


def test_values_that_do_not_follow_the_recipes_law_are_noticed(small, tmp_path):
    recipe = small.with_overrides({"samples": 200, "shard": 64})
    store = generate(recipe, str(tmp_path / "s.zarr"))
    assert verify(store.url).values_checked
    assert faults(store) == []
    unseal(store)
    for shard in range(store.shards):
        samples = store.shard_range(shard)
        values = {name: store.values(name, samples) for name in store.variables}
        write_shard(store, shard, {**values, "a": 1.3 * values["a"]})
    seal(store)
    found = verify(store.url).faults
    assert {fault.variable for fault in found} == {"a", "u"}  # u does not follow from it
    assert all("law" in fault.where for fault in found)
    assert verify(store.url, check_values=False).faults == []


# samples that are left out


@pytest.fixture
def failed(monkeypatch):
    """Samples 3 and 7 cannot be computed."""
    failing(monkeypatch, 3, 7)


def test_samples_that_fail_are_left_out_by_choice(small, finished, tmp_path, failed):
    url, notes = str(tmp_path / "s.zarr"), []
    with pytest.raises(SampleError, match="sample 3: it does not converge"):
        generate(small, url, workers=1)
    store = generate(
        small, url, resume=True, skip_failed=True, progress=lambda p: notes.extend(p.notes)
    )
    assert sorted(notes) == [f"sample {i} is skipped: it does not converge" for i in (3, 7)]
    assert store.skipped == [3, 7]
    assert store.record(0).skipped == {3: "it does not converge"}
    assert faults(store) == []
    values, whole = store.values("u"), finished.values("u")
    kept = [i for i in range(12) if i not in (3, 7)]
    np.testing.assert_array_equal(values[kept], whole[kept])
    assert np.isnan(values[[3, 7]]).all()
    train = [i for i in range(7) if i != 3]
    assert store.raw_attributes["statistics"]["u"]["mean"] == pytest.approx(
        whole[train].astype(float).mean(), rel=1e-12
    )


def test_any_number_of_samples_of_a_shard_may_fail(finished):
    class FirstOf:
        def compute(self, store, samples):
            raise SampleError(samples[0], "it does not converge")

    skipped = {}
    values = values_of(FirstOf(), finished, range(2000), skipped)
    assert list(skipped) == [*range(2000)]
    assert np.isnan(values["u"]).all()


def test_a_store_without_some_samples_is_repaired(small, tmp_path, failed):
    store = generate(small, str(tmp_path / "s.zarr"), skip_failed=True)
    sound = objects_of(store)
    for key in ("u/c/0/0", Record.key(1)):
        change(store, key, b"?")
    result = repair(store.url, deep=12)
    assert result.faults == []
    assert sorted(result.repaired) == [Record.key(1), "u/c/0/0"]
    assert objects_of(store) == sound


def test_a_record_that_is_sound_by_itself_is_compared_with_the_seal(small, tmp_path, failed):
    """Another reason for the same skipped sample: values, digests and means are as recorded."""
    store = generate(small, str(tmp_path / "s.zarr"), skip_failed=True)
    other = replace(store.record(0), skipped={3: "another reason"})
    store.objects.write(Record.key(0), other.encode())
    assert faults(store) == ["shard 0: records/000000.json is not the record that was sealed"]


def test_noise_leaves_out_what_its_parent_does(small, tmp_path, failed):
    parent = generate(small, str(tmp_path / "s.zarr"), skip_failed=True)
    levels = at_levels({"kind": "ensemble", "seed": 0}, [0.1])
    noisy = add_noise(parent.url, "u", levels, str(tmp_path / "noisy.zarr"))
    assert noisy.skipped == [3, 7]
    assert faults(noisy) == []
    assert np.isnan(noisy.values("u")).any(axis=(1, 2)).nonzero()[0].tolist() == [3, 7]


def test_a_store_that_is_not_sealed_is_not_verified(small, tmp_path):
    with interrupted(RecipeJob, sample=10):
        generate(small, str(tmp_path / "s.zarr"), workers=1)
    with pytest.raises(StoreError, match=r"is not sealed \(2 of 3 shards"):
        verify(str(tmp_path / "s.zarr"))


# several things at once


@pytest.mark.parametrize(
    "gone",
    [
        ["seal.json", "x/c/0"],
        ["seal.json", "a/zarr.json"],
        ["seal.json", "README.md", "croissant.json"],
        ["records/000001.json", "u/c/1/0"],
        ["records/000001.json", "a/c/1/0", "u/c/1/0", "error/c/1"],
        ["records/000000.json", "u/c/0/0", "records/000002.json", "a/c/2/0", "u/c/1/0"],
        ["seal.json", "records/000001.json", "u/c/1/0", "x/c/0"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("how", ["gone", "flipped"])
def test_several_objects_are_repaired_together(store, gone, how):
    sound = objects_of(store)
    for key in gone:
        if how == "gone":
            (Path(store.url) / key).unlink()
        else:
            change(store, key, flipped(sound[key], len(sound[key]) // 2, 3))
    assert faults(store)
    result = repair(store.url)
    assert result.faults == []
    assert set(result.repaired) == set(gone)
    assert objects_of(store) == sound


def test_what_the_recipe_does_not_make_is_never_sealed_again(store):
    sound = objects_of(store)
    (Path(store.url) / "seal.json").unlink()
    change(store, "zarr.json", sound["zarr.json"].replace(b'"title": "', b'"title": "x'))
    result = repair(store.url)
    assert result.repaired == []
    assert [fault.where for fault in result.faults] == ["seal.json"]


def forged(store, **changes):
    """A seal with other content and a right digest of its own."""
    content = json.loads((Path(store.url) / "seal.json").read_bytes())
    del content["sha256"]
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    change(store, "seal.json", with_digest(content))


def test_a_forged_seal_writes_and_reads_nothing_outside(store):
    outside = Path(store.url).parent / "owned.zarr.json"
    key, text = "../owned.zarr.json", "owned"
    forged(store, metadata={key: text}, objects={key: sha256(text.encode())})
    (fault,) = verify(store.url).faults
    assert str(fault) == "seal.json: it covers other objects than the store has"
    assert repair(store.url).faults == []  # it is made again by the recipe
    assert not outside.exists()


@pytest.mark.parametrize(
    "changes",
    [{"metadata": []}, {"objects": {"zarr.json": 5}}, {"records": None},
     {"metadata": {"zarr.json": "{}"}}, {"objects": {"zzz/c/0": "0"}}],
)  # fmt: skip
def test_a_seal_of_another_form_is_a_fault(store, changes):
    forged(store, **changes)
    assert [fault.where for fault in verify(store.url).faults] == ["seal.json"]


@pytest.mark.parametrize("digest", [[], {"u": 5}, None])
def test_a_record_of_another_form_is_a_fault(store, digest):
    key = "records/000001.json"
    content = json.loads((Path(store.url) / key).read_bytes())
    del content["sha256"]
    change(store, key, with_digest({**content, "digest": digest}))
    (fault,) = verify(store.url).faults
    assert fault.where == "shard 1"
    assert "it is no record: digest" in fault.what


def test_what_a_repair_that_was_killed_has_left_is_removed(store):
    partial = Path(store.url) / "u" / "c" / "0" / f"0.{32 * '0'}.partial"
    partial.write_bytes(b"half")
    assert repair(store.url).faults == []
    assert not partial.exists()
