"""Shards read ahead: order, continuation, ranks, processes, threads, and what they leave behind."""

import multiprocessing
import pickle
import shutil
import threading
from contextlib import closing
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch

from operators.data import DataError, open_pairs, read_pairs
from operators.data.opening import StoredVariable
from operators.transforms import Normalizer
from pdegen.domains import CellGrid
from pdegen.store import reading
from pdegen.store.objects import RemoteObject
from pdegen.store.reading import Store
from tests.s3 import served
from tests.stores import resealed, with_attributes

SHARD = 5
LOST = [3, 10, 11, 12, 13, 14, 29]  # one shard as a whole among them


def numbered(count):
    """Samples whose values tell their number: a = i, u = 1000 + i + the number of the point."""
    number = np.arange(count, dtype=np.float32)[:, None, None]
    points = np.arange(25, dtype=np.float32).reshape(5, 5)
    return {"a": number + 0 * points, "u": 1000 + number + points}


@pytest.fixture(scope="module")
def url(laid_out):
    """Split "train": samples 0 to 42, in 8 shards of 5 and one of 3."""
    return laid_out("cell", [CellGrid(5).x] * 2, **numbered(86))


@pytest.fixture(scope="module")
def gaps(laid_out):
    """The store of `url` with skipped samples; one whole shard is not stored."""
    values = numbered(86)
    for v in values.values():
        v[[i for i in LOST if i != 12]] = np.nan
    made = laid_out("cell", [CellGrid(5).x] * 2, **values)
    resealed(with_attributes(Store(made), skipped=LOST))
    for name in ("a", "u"):
        (Path(made) / name / "c" / "2" / "0" / "0").unlink()
    return made


def streamed(url, window=3, **changes):
    return open_pairs(url, "train").with_reader(window=window, **changes)


def seen(batches):
    """The numbers of the samples of each batch, which must have the targets that are theirs."""
    found = []
    for batch in batches:
        a, u = batch.a, batch.u
        assert torch.equal(u[:, 0, 0], a[:, 0, 0] + 1000)
        found.append(a[:, 0, 0, 0].int().tolist())
    return found


def flat(lists):
    return [i for one in lists for i in one]


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("batch", [1, 4, 10])
def test_an_epoch_has_every_sample_once_but_for_the_last_incomplete_batch(url, window, batch):
    found = seen(streamed(url, window).batches(0, 0, batch))
    assert [len(one) for one in found] == [batch] * (43 // batch)
    assert len(set(flat(found))) == len(flat(found))
    assert set(flat(found)) <= set(range(43))


def test_the_order_is_a_function_of_seed_and_epoch(url):
    orders = {key: flat(seen(streamed(url).batches(*key, 1))) for key in [(0, 0), (0, 1), (1, 0)]}
    assert all(sorted(order) == list(range(43)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 3
    for key, order in orders.items():
        assert flat(seen(streamed(url, threads=1).batches(*key, 1))) == order


def test_the_order_within_a_window_depends_on_seed_and_epoch(laid_out):
    """One shard, so that nothing else is in random order."""
    url = laid_out("cell", [CellGrid(5).x] * 2, **numbered(10))
    keys = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    orders = {key: tuple(flat(seen(streamed(url).batches(*key, 1)))) for key in keys}
    assert all(sorted(order) == list(range(5)) for order in orders.values())
    assert len(set(orders.values())) == len(keys)  # by chance two agree in one case of 12


def test_shards_come_in_random_order_and_those_of_a_window_are_mixed(url):
    order = flat(seen(streamed(url, 3).batches(0, 0, 1)))
    shards_of = [i // SHARD for i in order]
    first = list(dict.fromkeys(shards_of))
    assert first != sorted(first)
    window = shards_of[: 3 * SHARD]
    assert len(set(window)) == 3
    assert not set(window) & set(shards_of[3 * SHARD :])
    assert window != sorted(window, key=window.index)  # not one shard after another
    assert order[: 3 * SHARD] != sorted(order[: 3 * SHARD])


@pytest.mark.parametrize("window", [1, 2, 100])
def test_from_any_batch_on_the_epoch_is_the_same(url, window):
    whole = seen(streamed(url, window).batches(7, 2, 4))
    for first in range(len(whole) + 2):
        assert seen(streamed(url, window).batches(7, 2, 4, first)) == whole[first:]


def test_only_the_shards_from_the_first_batch_on_are_read(url, monkeypatch):
    read, original = [], StoredVariable.read

    def watched(self, samples, out):
        read.append((self.shards.array.name, int(samples[0]) // SHARD))
        original(self, samples, out)

    monkeypatch.setattr(StoredVariable, "read", watched)
    found = seen(streamed(url, 1).batches(0, 0, 5, first=6))
    assert len(found) == 2
    used = {i // SHARD for i in flat(found)}
    assert {shard for _, shard in read} >= used
    assert len({shard for _, shard in read}) <= 3  # of 9: ten samples may begin inside a shard
    assert len(read) == len(set(read))  # inputs and targets, once each


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_have_as_many_batches_and_no_sample_in_common(url, ranks):
    resident = read_pairs(url, "train")
    for pairs in (streamed(url, 2), resident):
        parts = [seen(pairs.batches(0, 3, 4, rank=rank, ranks=ranks)) for rank in range(ranks)]
        assert {len(part) for part in parts} == {43 // ranks // 4}
        together = flat(flat(parts))
        assert len(together) == len(set(together)) == ranks * 4 * (43 // ranks // 4)
        singles = [seen(pairs.batches(0, 3, 1, rank=rank, ranks=43)) for rank in range(43)]
        assert sorted(flat(flat(singles))) == list(range(43))


@pytest.mark.parametrize(("rank", "ranks"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_beyond_the_ranks_is_refused(url, rank, ranks):
    for pairs in (streamed(url), read_pairs(url, "train")):
        with pytest.raises(ValueError, match=r"rank must be 0 to ranks - 1, got"):
            next(pairs.batches(0, 0, 4, rank=rank, ranks=ranks))


def test_resident_samples_come_in_the_order_of_one_permutation(url):
    """As they always did: a run that was begun earlier goes on to the same bits."""
    key = np.random.SeedSequence((5, 0, 2)).generate_state(1, np.uint64)[0] >> 1
    order = torch.randperm(43, generator=torch.Generator().manual_seed(int(key))).tolist()
    pairs = read_pairs(url, "train")
    assert seen(pairs.batches(5, 2, 4)) == [order[4 * k : 4 * k + 4] for k in range(10)]
    assert seen(pairs.batches(5, 2, 4, first=7)) == [order[4 * k : 4 * k + 4] for k in (7, 8, 9)]


def test_skipped_samples_are_in_no_split(gaps):
    pairs, resident = streamed(gaps), read_pairs(gaps, "train")
    kept = [i for i in range(43) if i not in LOST]
    assert pairs.ids.tolist() == resident.ids.tolist() == kept
    assert len(pairs) == len(resident) == 36
    assert sorted(flat(seen(pairs.batches(0, 0, 1)))) == kept
    assert sorted(flat(seen(resident.batches(0, 0, 1)))) == kept
    assert flat(seen(pairs.in_order(4))) == flat(seen(resident.in_order(4))) == kept
    with pytest.raises(DataError, match="all samples 10 to 14 were skipped"):
        open_pairs(gaps, (10, 15))


def test_values_that_are_missing_without_a_reason_are_refused(gaps, tmp_path):
    store = Path(shutil.copytree(gaps, tmp_path / "store.zarr"))
    resealed(with_attributes(Store(str(store)), skipped=[]))
    with pytest.raises(DataError, match=r"a, samples 0 to 4: .*damaged \(values are missing\)"):
        read_pairs(str(store), "train")
    with pytest.raises(DataError, match="values are missing"):
        list(streamed(str(store)).batches(0, 0, 4))


@pytest.mark.parametrize("batch", [1, 4, 50])
def test_parts_are_all_samples_in_order(url, batch):
    for pairs in (streamed(url, 2), read_pairs(url, "train")):
        found = seen(pairs.in_order(batch))
        assert flat(found) == list(range(43))
        assert max(map(len, found)) <= batch
    assert seen([streamed(url).first()]) == [[0]]


# threads and processes


def reading_threads():
    return [t for t in threading.enumerate() if t.name.startswith("reading")]


@pytest.mark.parametrize("taken", [0, 1, 10])
def test_threads_end_with_the_iterator(url, taken):
    with closing(streamed(url, 1).batches(0, 0, 4)) as batches:
        for _ in range(taken):
            next(batches)
    assert reading_threads() == []
    with closing(streamed(url, 1).in_order(4)) as parts:
        next(parts)
    assert reading_threads() == []


def test_an_error_of_a_thread_is_raised_where_batches_are_taken(url, tmp_path):
    store = Path(shutil.copytree(url, tmp_path / "store.zarr"))
    order = flat(seen(streamed(url, 1).batches(0, 0, 1)))
    third = list(dict.fromkeys(i // SHARD for i in order))[2]
    shard = store / "u" / "c" / str(third) / "0" / "0"
    shard.write_bytes(shard.read_bytes()[:-7])
    found = []
    with pytest.raises(DataError, match=rf"u, samples {third * SHARD} to .*pdegen verify"):
        found.extend(streamed(str(store), 1).batches(0, 0, 5))
    assert len(found) == 2
    assert reading_threads() == []


def order_in_another_process(pairs, queue):
    queue.put((seen(pairs.batches(1, 1, 4)), [t.name for t in threading.enumerate()]))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_reads_the_same_in_processes_however_they_are_started(url, method):
    pairs = streamed(url, 2)
    here = pairs.batches(1, 1, 4)
    assert len(pickle.dumps(pairs)) < 24_000  # no values are sent
    expected = [seen([next(here)])[0]]  # its threads run while the other process is started
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=order_in_another_process, args=(pairs, queue))
    process.start()
    there, threads = queue.get()
    process.join(60)
    assert process.exitcode == 0
    assert expected + seen(here) == there
    assert not [name for name in threads if name.startswith("reading")]


def test_reads_any_url(url):
    files = fsspec.filesystem("memory")
    files.put(url, "/reading/store.zarr", recursive=True)
    try:
        for other in ("memory://reading/store.zarr", f"file://{url}"):
            assert seen(streamed(other).batches(0, 0, 4)) == seen(streamed(url).batches(0, 0, 4))
            assert torch.equal(read_pairs(other, "test").u, read_pairs(url, "test").u)
    finally:
        files.rm("/reading", recursive=True)
    with pytest.raises(DataError, match=r"memory://absent.zarr: no such store"):
        open_pairs("memory://absent.zarr", "train")
    with pytest.raises(DataError, match="nosuch://x: Protocol not known"):
        open_pairs("nosuch://x", "train")
    with pytest.raises(DataError, match="a s3:// URL must not hold credentials") as refusal:
        open_pairs("s3://me:secret@bucket/store.zarr", "train")
    assert "secret" not in str(refusal.value)
    with pytest.raises(DataError, match="the path or URL of a store has no '::'"):
        open_pairs(f"simplecache::file://{url}", "train")


@pytest.fixture
def bucket():
    with served():
        yield "s3://data"


def test_reads_an_object_store(url, bucket):
    fsspec.filesystem("s3").put(url, f"{bucket}/reading.zarr", recursive=True)
    pairs = streamed(f"{bucket}/reading.zarr", 2)
    with pytest.raises(DataError, match=r"s3://data/absent.zarr: no such store"):
        open_pairs(f"{bucket}/absent.zarr", "train")
    expected, same = streamed(url, 2), read_pairs(url, "train")
    assert seen(pairs.batches(0, 0, 4, first=3)) == seen(expected.batches(0, 0, 4, first=3))
    assert seen(pairs.resident().in_order(4)) == seen(same.in_order(4))


# what is made of the values


def test_one_pass_keeps_a_small_spread_about_a_large_mean():
    values = 1e4 + torch.randn(200, 3, 2, generator=torch.Generator().manual_seed(0))
    x = torch.linspace(0, 1, 3)[:, None]
    found = Normalizer.pointwise(values.split(7), x, eps=0.0)
    expected = values.double().std(0, correction=0).float()
    torch.testing.assert_close(found.std, expected, rtol=2e-7, atol=0)


# how shards are read


@pytest.mark.parametrize("verified", [False, True])
def test_parts_of_an_object_that_are_read_at_once_have_a_bounded_size(
    plane_store, monkeypatch, verified
):
    files = fsspec.filesystem("memory")
    files.put(plane_store, "/parts/store.zarr", recursive=True)
    whole, sizes = read_pairs(plane_store, "train"), list[int]()
    original = type(files).cat_file

    def watched(self, path, start=None, end=None, **words):
        data = original(self, path, start=start, end=end, **words)
        sizes.append(len(data) if "/c/" in path else 0)
        return data

    def read():
        pairs = read_pairs("memory://parts/store.zarr", "train")
        assert torch.equal(pairs.a, whole.a)
        assert torch.equal(pairs.u, whole.u)

    reading.verified_shards().clear()  # a new process compares shards with their records
    try:
        if verified:
            read()
        monkeypatch.setattr(type(files), "cat_file", watched)
        monkeypatch.setattr(RemoteObject, "at_once", 700)
        monkeypatch.setattr(reading, "WHOLE_BYTES", 700)
        read()
    finally:
        files.rm("/parts", recursive=True)
    assert 700 < max(sizes) <= 700 + 13 * 13 * 4 * 5  # a chunk is read as a whole
