"""Recording a step as a CUDA graph: what cannot be recorded, and a capture that fails."""

from contextlib import contextmanager

import pytest
import torch
from torch.torch_version import TorchVersion

from operators.data import Batch
from operators.training import step
from operators.training.step import Recorded, Repeated, Watch

X = torch.tensor([[4.0, 1.0], [1.0, 3.0]])


def waits_of(act):
    with Watch() as watch:
        act()
    return watch.waits


COPY = "copy between devices"
META = torch.device("meta")


@pytest.mark.parametrize(
    ("act", "wait"),
    [
        # values of the host that go to a device
        (lambda: torch.ones(3).to(META), COPY),
        (lambda: torch.tensor([1.0, 2.0], device=META), COPY),
        (lambda: torch.tensor(data=2.0, device=META), COPY),
        (lambda: torch.as_tensor([1.0], device=META), COPY),
        (lambda: torch.asarray(torch.ones(3), device=META), COPY),
        (lambda: torch.ones(3, device=META).new_tensor([1.0]), COPY),
        (lambda: torch.ones(3, device=META)[torch.tensor([0, 1])], COPY),
        # operations that answer to the host
        (lambda: X[X > 1], "index by a mask"),
        (lambda: X.clone().__setitem__(X > 1, torch.ones(2)), "index by a mask"),
        (lambda: X[X.nonzero()[0, 0]], "nonzero"),
        (lambda: X.unique(), "_unique2"),
        (lambda: X.repeat_interleave(torch.tensor([1, 2]), dim=0), "repeat_interleave"),
        (lambda: torch.linalg.eigh(X), "_linalg_eigh"),
        (lambda: torch.linalg.svdvals(X), "_linalg_svd"),
        (lambda: torch.linalg.eigvals(X), "linalg_eig"),
        (lambda: torch.linalg.solve(X, X), "_linalg_check_errors"),
        (lambda: torch.linalg.cholesky(X), "_linalg_check_errors"),
        (lambda: torch.linalg.lstsq(X, X), "linalg_lstsq"),
        (lambda: torch.normal(X, X), "normal"),
    ],
)
def test_what_waits_for_values_is_noticed(act, wait):
    assert wait in waits_of(act)


@pytest.mark.parametrize(
    "act",
    [
        lambda: torch.ones(3).to(torch.float64) + 1,
        lambda: torch.tensor([1.0, 2.0]),
        lambda: torch.as_tensor(torch.ones(3, device=META)),
        lambda: torch.ones(3).new_tensor([1.0]),
        lambda: torch.zeros(3, device=META) + torch.full((3,), 2.0, device=META),
        lambda: torch.ones(3, device=META)[torch.arange(2, device=META)],
        lambda: X.where(X > 1, 0.0).masked_fill(X > 2, 1.0),
        lambda: X.clone().__setitem__(X > 1, 0.0),
        lambda: X.repeat_interleave(2, dim=0),
        lambda: torch.normal(X, 1.0),
    ],
)
def test_what_stays_on_a_device_is_no_wait(act):
    assert waits_of(act) == set()


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (lambda: torch.linalg.cholesky_ex(X), "linalg_cholesky_ex"),
        (lambda: torch.linalg.solve_triangular(X, X, upper=True), "linalg_solve_triangular"),
        (lambda: torch.linalg.qr(X), "linalg_qr"),
        (lambda: torch.linalg.solve_ex(X, X), "_linalg_solve_ex"),
    ],
)
def test_solvers_of_a_library_are_named_and_tried(act, name):
    with Watch() as watch:
        act()
    torch.tensor([1.0], device=META)  # after the watch
    assert (watch.solvers, watch.waits) == ({name}, set())


class Stream:
    def wait_stream(self, other):
        pass


class Graph:
    def __init__(self, cuda):
        self.cuda, self.begun = cuda, False

    def reset(self):
        if self.begun and self.cuda.version >= (2, 14):
            self.cuda.references -= 1
        self.cuda.done.append("reset")


class FakeCuda:
    """What a recording asks of torch.cuda, as PyTorch of that version does it: a capture that fails
    raises at its end, which gives the current stream not back."""

    def __init__(self, version):
        self.version, self.done = TorchVersion(version), []
        self.stream_ = self.first = Stream()
        self.allocating, self.references = [], 0
        self.default_generators = {0: self}
        self.generator = "captured"

    def Stream(self):
        return Stream()

    def CUDAGraph(self):
        return Graph(self)

    def current_stream(self):
        return self.stream_

    def current_device(self):
        return 0

    def graph_pool_handle(self):
        return (0, 5)

    def graphsafe_set_state(self, state):
        self.generator = state

    @contextmanager
    def stream(self, stream):
        before, self.stream_ = self.stream_, stream
        try:
            yield
        finally:
            self.stream_ = before

    @contextmanager
    def graph(self, graph, stream, capture_error_mode, pool=None):
        assert capture_error_mode == "thread_local"
        self.warm = stream
        self.stream_, graph.begun = stream, True
        self.allocating.append(pool)
        self.references += 1
        try:
            yield
        finally:
            self.done.append("end")
            if self.version >= (2, 13):
                self.allocating.remove(pool)
            raise RuntimeError("operation failed due to a previous error during capture")

    def end_allocation(self, device, pool):
        assert self.stream_ is self.first
        if pool not in self.allocating:
            raise RuntimeError("not currently recording to that pool")
        self.allocating.remove(pool)
        self.done.append("ended")

    def release(self, device, pool):
        assert not self.allocating
        self.references -= 1
        self.done.append("released")


class OnCuda:
    """A tensor that says it is on a GPU."""

    device = torch.device("cuda")

    def clone(self):
        return self


class Fresh:
    def __init__(self, device):
        assert device.type == "cuda"

    def graphsafe_get_state(self):
        return "fresh"


@pytest.mark.usefixtures("unchecked")  # what is on a GPU is none here
@pytest.mark.parametrize("version", ["2.6.0", "2.12.1", "2.13.0", "2.14.0"])
def test_a_capture_that_fails_leaves_all_as_it_was(monkeypatch, version):
    """The stream of the thread, the memory of the capture, the graph, the random numbers."""
    cuda = FakeCuda(version)
    seen = []

    def function(batch):
        seen.append(cuda.current_stream())
        if len(seen) > step._WARM_UP:
            raise RuntimeError("operation not permitted when stream is capturing")

    names = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"
    new, old = names if cuda.version >= (2, 7) else names[::-1]
    monkeypatch.setattr(torch._C, new, cuda.end_allocation, raising=False)
    monkeypatch.delattr(torch._C, old, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", cuda.release, raising=False)
    monkeypatch.setattr(torch, "__version__", cuda.version)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch, "Generator", Fresh)
    with pytest.raises(RuntimeError, match="previous error") as raised:
        Recorded(function, Batch(OnCuda(), OnCuda()))
    monkeypatch.undo()
    assert str(raised.value.__context__).startswith("operation not permitted")
    assert cuda.current_stream() is cuda.first
    assert (cuda.allocating, cuda.references, cuda.generator) == ([], 0, "fresh")
    assert cuda.done[-1] == "reset"  # after what it would forget
    # all that libraries keep for a stream is there when the capture begins
    assert set(seen) == {cuda.warm} != {cuda.first}


@pytest.mark.usefixtures("unchecked")
def test_what_undoes_a_capture_goes_on_where_a_part_of_it_fails(monkeypatch):
    cuda = FakeCuda("2.12.0")

    def gone(device, pool):
        raise RuntimeError("no such pool")

    monkeypatch.setattr(torch, "__version__", cuda.version)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", gone, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", gone, raising=False)
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch, "Generator", Fresh)
    with pytest.raises(RuntimeError, match="no such pool"):
        step._undo(Graph(cuda), (0, 5), torch.device("cuda"))
    monkeypatch.undo()
    assert (cuda.done, cuda.generator) == (["reset"], "fresh")


class CapturingCuda(FakeCuda):
    """As a device of a capture that succeeds: what is called meanwhile is not done, but kept."""

    def __init__(self):
        super().__init__("2.13.0")
        self.capturing, self.kept = False, []

    def CUDAGraph(self):
        graph = super().CUDAGraph()
        graph.replay = lambda: [act() for act in self.kept]
        return graph

    def launch(self, act):
        (self.kept.append if self.capturing else lambda act: act())(act)

    @contextmanager
    def graph(self, graph, stream, capture_error_mode, pool=None):
        self.capturing = True
        yield
        self.capturing = False


def test_a_repeated_function_acts_once_a_call_whether_recorded_or_not(monkeypatch):
    cuda, total, calls = CapturingCuda(), [], []

    def function():
        calls.append(len(total))
        cuda.launch(lambda: total.append(1))

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    monkeypatch.setattr(torch, "cuda", cuda)
    repeated = Repeated(function, torch.device("cuda"))
    for number in range(1, 8):
        repeated()
        assert len(total) == number
    monkeypatch.undo()
    assert calls == [0, 1, 2, 3]  # the last is the capture
    assert repeated.note == ""


def test_a_repeated_function_goes_on_as_it_is_where_its_capture_fails(monkeypatch):
    cuda, total = FakeCuda("2.13.0"), []
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch, "Generator", Fresh)

    def function():
        if cuda.allocating:
            raise RuntimeError("operation not permitted when stream is capturing")
        total.append(1)

    repeated = Repeated(function, torch.device("cuda"))
    for number in range(1, 6):
        repeated()
        assert len(total) == number
    monkeypatch.undo()
    assert "previous error" in repeated.note
    assert cuda.current_stream() is cuda.first
