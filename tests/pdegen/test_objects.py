import errno
import os
from contextlib import nullcontext
from threading import Barrier, Thread

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pdegen import files
from pdegen.generation.generate import RecipeJob, generate
from pdegen.store.lock import LockedError
from pdegen.store.objects import Objects, TooLargeError, UrlError
from tests.stores import interrupted, objects_of


@pytest.fixture(params=["path", "file", "memory"])
def objects(request, tmp_path):
    url = {
        "path": str(tmp_path / "store"),
        "file": f"file://{tmp_path}/store",
        "memory": f"memory://{tmp_path}/store",
    }[request.param]
    return Objects(url)


def test_objects_are_written_read_listed_and_removed(objects):
    assert not objects.exists()
    assert objects.keys("records") == []
    with pytest.raises(FileNotFoundError):
        objects.read("records/a")
    for name in ("b", "a", "c/deep"):
        objects.write(f"records/{name}", b"old")
    objects.write("records/a", b"a" * 11)
    objects.write("other", b"")
    assert objects.read("records/a", at_most=11) == b"a" * 11
    with pytest.raises(OSError, match="larger than 10 bytes"):
        objects.read("records/a", at_most=10)
    assert objects.exists("records/a")
    assert objects.keys("records") == ["a", "b", "c"]
    assert objects.keys("") == ["other", "records"]
    assert objects.is_local != objects.url.startswith("memory")
    objects.remove_all()
    assert not objects.exists()


def test_a_write_that_fails_leaves_the_old_bytes_and_no_others(tmp_path, monkeypatch):
    objects = Objects(str(tmp_path))
    objects.write("record", b"old")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        objects.write("record", b"new")
    assert objects.read("record") == b"old"
    assert objects.keys("") == ["record"]


def test_of_several_who_create_an_object_one_succeeds(tmp_path):
    for url in (str(tmp_path), f"memory://{tmp_path}"):
        objects = Objects(url)
        objects.create("lock", b"first")
        with pytest.raises(FileExistsError):
            objects.create("lock", b"second")
        assert objects.read("lock") == b"first"
        assert objects.keys("") == ["lock"]


NO_LINKS = [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK]


@pytest.fixture(
    params=[*((number, True) for number in NO_LINKS), (errno.EPERM, False)],
    ids=lambda case: f"{errno.errorcode[case[0]]}-{'flags' if case[1] else 'no flags'}",
)
def unlinked(request, monkeypatch):
    """A file system without hard links, such as exFAT (with flags of rename) or gcsfuse."""
    number, flags = request.param

    def link(source, target, **options):
        raise OSError(number, os.strerror(number), source, None, target)

    monkeypatch.setattr(os, "link", link)
    if not flags:
        monkeypatch.setattr(files, "_renameat2", lambda: None)


@pytest.mark.usefixtures("unlinked")
def test_without_hard_links_a_store_is_generated_continued_and_replaced(small, finished, tmp_path):
    url = str(tmp_path / "s.zarr")
    with interrupted(RecipeJob, 7):
        generate(small, url, workers=1)
    assert objects_of(generate(small, url, resume=True)) == objects_of(finished)
    assert objects_of(generate(small, url, overwrite=True)) == objects_of(finished)


@pytest.mark.usefixtures("unlinked")
def test_without_hard_links_one_of_several_creates_an_object(tmp_path):
    objects, together, created = Objects(str(tmp_path)), Barrier(8), []

    def create(data):
        together.wait()
        try:
            objects.create("lock", data)
        except FileExistsError:
            return
        created.append(data)

    threads = [Thread(target=create, args=(bytes([k]),)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(created) == 1
    assert objects.read("lock") == created[0]
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_name_that_was_reserved_is_free_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_linked", lambda source, path: False)
    monkeypatch.setattr(files, "_renamed", lambda source, path, flag: False)

    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        Objects(str(tmp_path)).create("lock", b"data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["write", "create"])
def test_an_empty_folder_in_the_place_of_an_object_goes_one_with_files_stays(tmp_path, way):
    objects = Objects(str(tmp_path))
    (tmp_path / "a" / "empty").mkdir(parents=True)
    getattr(objects, way)("a", b"data")
    assert objects.read("a") == b"data"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("mine", "utf-8")
    with pytest.raises(OSError, match="a folder with files is in the place of an object") as error:
        getattr(objects, way)("b", b"data")
    assert error.value.filename == str(tmp_path / "b")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["thesis.tex"]
    assert objects.keys("") == ["a", "b"]


@pytest.mark.parametrize(("way", "names_it"), [("write", "replace"), ("create", "link")])
def test_an_object_is_flushed_before_it_has_its_name_and_its_folder_after(
    tmp_path, monkeypatch, way, names_it
):
    order = []

    def note(name):
        real = getattr(os, name)

        def noted(place, *rest):
            path = os.readlink(f"/proc/self/fd/{place}") if name == "fsync" else place
            short = os.path.relpath(path, tmp_path)
            order.append((name, "partial" if short.endswith(".partial") else short))
            return real(place, *rest)

        monkeypatch.setattr(os, name, noted)

    for name in ("mkdir", "fsync", names_it):
        note(name)
    getattr(Objects(str(tmp_path / "s")), way)("a/b", b"bytes")
    assert order == [
        ("mkdir", "s"), ("fsync", "."), ("mkdir", "s/a"), ("fsync", "s"),
        ("fsync", "partial"), (names_it, "partial"), ("fsync", "s/a"),
    ]  # fmt: skip


def test_what_was_removed_does_not_come_back_after_a_loss_of_power(tmp_path, monkeypatch):
    objects, synced = Objects(str(tmp_path)), []
    objects.write("a/b", b"removed")
    (tmp_path / "a" / "c.0123456789abcdef0123456789abcdef.partial").write_bytes(b"half")
    fsync = os.fsync

    def noted(descriptor):
        folder = tmp_path / "a"
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            synced.append(sorted(path.name for path in folder.iterdir()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    objects.remove_partial()
    objects.remove("a/b")
    assert synced == [["b"], []]


@pytest.mark.parametrize("key", ["../a", "a/../../b", "/etc/a", "a//b", "./a", "a/"])
def test_no_key_leads_elsewhere(objects, key):
    for act in (objects.read, objects.exists, objects.remove, objects.keys,
                lambda k: objects.write(k, b"")):  # fmt: skip
        with pytest.raises(ValueError, match="cannot have the key"):
            act(key)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is empty"),
        ("foo://bucket/x", "foo://bucket/x: Protocol not known: foo"),
        ("hdfs://host/x", "hdfs://host/x: .*(libjvm|libhdfs)"),
        ("s3://me:secret@bucket/x", "must not hold credentials"),
        ("a::b.zarr", "has no '::'"),
        ("simplecache::s3://me:secret@bucket/x", "has no '::'"),
    ],
)
def test_a_url_that_cannot_be_used_is_named(url, message):
    with pytest.raises(UrlError, match=message) as error:
        Objects(url).exists()
    assert "secret" not in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_objects_that_are_read_together_have_a_limit(objects):
    for name in "ab":
        objects.write(name, b"12345")
    assert objects.read_all(["a", "b"], 5) == [b"12345"] * 2
    with pytest.raises(TooLargeError):
        objects.read_all(["a", "b"], 4)


def test_a_server_that_makes_an_object_twice_is_refused_and_nothing_is_left(
    small, tmp_path, monkeypatch
):
    objects = Objects(f"memory://{tmp_path}/store")
    objects.check_conditional()
    pipe = MemoryFileSystem.pipe_file

    def careless(self, path, value, mode="overwrite", **options):
        pipe(self, path, value, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", careless)
    with pytest.raises(UrlError, match="ignores If-None-Match") as error:
        generate(small, objects.url)
    assert len(str(error.value).splitlines()) == 1
    assert not objects.exists()
    monkeypatch.undo()
    assert generate(small, objects.url).sealed


def test_a_partial_file_that_its_writer_finishes_meanwhile_is_no_error(tmp_path, monkeypatch):
    """Such as a renewal of the lease while the store is sealed."""
    monkeypatch.setattr(
        os, "walk", lambda root: iter([(root, [], [f"lease.json.{32 * '0'}.partial"])])
    )
    Objects(str(tmp_path)).remove_partial()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", ["write", "create", "remove", "remove_all", "clear"])
def test_no_folder_of_a_key_is_a_symbolic_link(tmp_path, way):
    objects, elsewhere = Objects(str(tmp_path / "s")), tmp_path / "elsewhere"
    objects.write("a/b", b"ours")
    elsewhere.mkdir()
    (elsewhere / "c").write_bytes(b"theirs")
    (tmp_path / "s" / "u").symlink_to(elsewhere)
    data = (b"ours",) if way in ("write", "create") else ()
    for key in ("u/c", "u/d", "u/e/f"):
        with pytest.raises(OSError, match="a symbolic link is in the place of a folder"):
            getattr(objects, way)(key, *data)
    assert [(path.name, path.read_bytes()) for path in elsewhere.iterdir()] == [("c", b"theirs")]
    assert objects.links() == ["u"]


def looking(see, acts=(), error=None):
    """A check and what it has seen; other writers act at its looks, and it fails at the second."""
    seen = []

    def check():
        seen.append(see())
        for act in acts[len(seen) - 1 : len(seen)]:
            act()
        if len(seen) == 2 and error:
            raise error

    return check, seen


@pytest.mark.parametrize("before", [None, b"before"])
@pytest.mark.parametrize("meanwhile", [None, b"theirs"])
@pytest.mark.parametrize("swap", [True, False])
@pytest.mark.parametrize("links", [True, False])
def test_a_writer_that_lost_the_store_between_two_looks_puts_back_what_was_there(
    tmp_path, monkeypatch, before, meanwhile, swap, links
):
    objects = Objects(str(tmp_path))
    if before is not None:
        objects.write("a", before)
    if not swap:
        monkeypatch.setattr(files, "_renameat2", lambda: None)
    if not links:
        monkeypatch.setattr(files, "_linked", lambda source, path: False)
    acts = [lambda: objects.write("a", meanwhile)] if meanwhile else []  # the process stops then
    check, seen = looking(lambda: objects.try_read("a", 99)[0], acts, ValueError("taken over"))
    with pytest.raises(ValueError, match="taken over"):
        objects.write("a", b"stale", check)
    assert seen == [before, b"stale"]
    assert objects.try_read("a", 99)[0] == (meanwhile or before)
    assert objects.keys("") == (["a"] if meanwhile or before else [])
    assert len(list(tmp_path.iterdir())) == len(objects.keys(""))


def test_an_object_that_the_other_writes_after_the_stale_one_stays(tmp_path):
    objects = Objects(str(tmp_path))
    objects.write("a", b"before")
    acts = [lambda: None, lambda: objects.write("a", b"theirs")]
    check, _ = looking(lambda: None, acts, ValueError("taken over"))
    with pytest.raises(ValueError, match="taken over"):
        objects.write("a", b"stale", check)
    assert objects.read("a") == b"theirs"


@pytest.mark.parametrize(("same", "left"), [(False, None), (True, b"stale")])
def test_on_an_object_store_what_was_written_too_late_is_removed(tmp_path, same, left):
    objects = Objects(f"memory://{tmp_path}/late")
    check, _ = looking(lambda: None, error=LockedError("taken over", same))
    with pytest.raises(LockedError, match="taken over"):
        objects.write("a", b"stale", check)
    assert objects.try_read("a", 99)[0] == left


@pytest.mark.parametrize("error", [ValueError("taken over"), None])
def test_what_is_removed_after_the_store_was_lost_is_moved_back(tmp_path, error):
    objects = Objects(str(tmp_path))
    objects.write("u/c/0", b"theirs")
    check, seen = looking(lambda: list(objects.all_keys()), error=error)
    with pytest.raises(ValueError, match="taken over") if error else nullcontext():
        objects.remove_all("u", check)
    assert seen == [["u/c/0"], []]
    assert list(objects.all_keys()) == (["u/c/0"] if error else [])


def test_a_store_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    Objects(str(tmp_path / "link")).write("a/b", b"bytes")
    assert (tmp_path / "disk" / "a" / "b").read_bytes() == b"bytes"
