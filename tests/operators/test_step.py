"""A training step: however it is run, it is the step as written."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from operators.base import Operator
from operators.data import Batch
from operators.models.fno import FNO
from operators.models.galerkin import GalerkinTransformer
from operators.nn import spectral
from operators.norms import RelativeH1
from operators.symmetries import TorusSymmetries
from operators.training import step as step_module
from operators.training.step import AS_WRITTEN, Acceleration, AccelerationError, Step, Watch
from operators.transforms import Boundary, Normalizer, Predictor

CPU = torch.device("cpu")
RECORDED = replace(AS_WRITTEN, graphed=True)


def small(dtype=torch.float32, **settings):
    torch.manual_seed(0)
    words = {"width": 24, "depth": 2, "feedforward": 32, "modes": 6, "decoder_width": 12}
    operator = GalerkinTransformer(**words | settings)
    return Predictor(operator, Normalizer.identity(1), Normalizer.identity(1)).to(dtype)


def with_batch_norm():
    torch.manual_seed(0)
    operator = FNO(dim=1, modes=4, width=8, normalization="batch")
    return Predictor(operator, Normalizer.identity(1), Normalizer.identity(1))


def batch(k=0, dtype=torch.float32, n=32):
    generator = torch.Generator().manual_seed(k)
    a, u = torch.randn(2, 6, n, 1, generator=generator, dtype=dtype).cumsum(2) / n
    return a, u, (torch.arange(n) / n)[:, None].to(dtype)


def trained(predictor, acceleration, steps=5, **options):
    """Losses of some steps, and the state afterwards."""
    options = {"augment": TorusSymmetries(), **options}
    step = Step(
        predictor.train(), batch()[2], None, RelativeH1(), 0.999, acceleration=acceleration,
        **options,
    )  # fmt: skip
    optimizer = torch.optim.Adam(predictor.parameters(), lr=1e-3)
    losses = []
    for k in range(steps):
        a, u, _ = batch(k)
        losses.append(float(step(Batch(a, u), seed=k)))
        optimizer.step()
    return losses, predictor.state_dict(), step


@pytest.mark.parametrize("made", [lambda: small(attention_dropout=0.2), with_batch_norm])
def test_a_recorded_step_is_the_step_as_written(made):
    """Random numbers, statistics of batches and all: recording leaves no trace."""
    expected, weights, _ = trained(made(), AS_WRITTEN)
    losses, state, step = trained(made(), RECORDED)
    assert step.note == ""
    assert losses == expected
    for name in weights:
        assert torch.equal(state[name], weights[name]), name


def test_an_operator_that_waits_for_values_is_not_recorded_and_that_is_said():
    class Waiting(GalerkinTransformer):
        def forward(self, a, x, y=None):
            return super().forward(a, x, y) * (1.0 if float(a.abs().max()) < 1e6 else 0.0)

    torch.manual_seed(0)
    operator = Waiting(width=24, depth=2, feedforward=32, modes=6, decoder_width=12)
    predictor = Predictor(operator, Normalizer.identity(1), Normalizer.identity(1))
    losses, _, step = trained(predictor, RECORDED)
    assert losses == trained(small(), AS_WRITTEN)[0]
    assert str(step).startswith("float32, as written; no CUDA graph: the operator waits")


@pytest.mark.usefixtures("unchecked")  # the checks of shapes do not compile
def test_a_compiled_step_is_the_step_as_written(monkeypatch):
    """Traced and derived by PyTorch's compiler; its kernels for this processor are a slow test."""
    compile = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, **kw: compile(f, backend="aot_eager", dynamic=kw["dynamic"])
    )
    expected, _, _ = trained(small(depth=1), AS_WRITTEN)
    losses, _, step = trained(small(depth=1), replace(RECORDED, compiled=True))
    assert step.note == ""
    # sums in another order: some float32 digits of losses near 1
    assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("tuned", [False, True])
def test_compiling_leaves_no_trace_and_tunes_products_where_it_is_asked_for(monkeypatch, tuned):
    """Statistics of batches and random numbers are those of the step as written."""
    modes = []
    monkeypatch.setattr(torch, "compile", lambda f, dynamic, mode: modes.append(mode) or f)
    expected, weights, _ = trained(with_batch_norm(), AS_WRITTEN)
    losses, state, step = trained(
        with_batch_norm(), replace(AS_WRITTEN, compiled=True, tuned=tuned)
    )
    assert (losses, step.note) == (expected, "")
    assert all(torch.equal(state[name], weights[name]) for name in weights)
    assert modes == ["max-autotune-no-cudagraphs" if tuned else None]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
@pytest.mark.filterwarnings("ignore:.*_prims_common:FutureWarning")  # and calls
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
@pytest.mark.slow  # a minute of compilation
@pytest.mark.parametrize("tuned", [False, True])
def test_a_step_of_fused_kernels_is_the_step_as_written(tuned):
    expected, _, _ = trained(small(), AS_WRITTEN)
    losses, _, step = trained(small(), replace(RECORDED, compiled=True, tuned=tuned))
    assert step.note == ""
    assert losses == pytest.approx(expected, rel=1e-5)


def gradient(acceleration, predictor=None, **size):
    a, u, x = batch(**size)
    predictor = predictor or small()
    step = Step(predictor, x, None, RelativeH1(), 1e9, acceleration=acceleration)
    loss = step(Batch(a, u), seed=0)
    return float(loss), torch.cat([p.grad.flatten() for p in predictor.parameters()])


def angle(g, h):
    """Relative distance of two gradients."""
    return float((g - h).norm() / h.norm())


def test_bf16_has_the_gradient_up_to_its_precision():
    loss, expected = gradient(AS_WRITTEN)
    found, g = gradient(replace(AS_WRITTEN, precision="bf16"))
    assert found == pytest.approx(loss, rel=1e-3)
    assert 1e-5 < angle(g, expected) < 2e-2  # 8 bits: 2⁻⁹ in each product


def test_walls_are_set_to_zero_without_a_copy_from_the_processor():
    class Ones(Pointwise):
        def forward(self, a, x, y=None):
            return torch.ones_like(a)

    a, x, same = torch.ones(2, 4, 5, 1), torch.rand(4, 5, 2), Normalizer.identity(1)
    predictor = Predictor(Ones(1), same, same, Boundary((0.0,), (True, True)))
    zeroed = predictor(a, x)
    assert zeroed[:, 1:-1, 1:-1].eq(1).all()
    assert zeroed.sum() == 2 * 2 * 3
    predict, a = predictor.to("meta").on(x.to("meta")), a.to("meta")
    with Watch() as watch:
        predict(a)
    assert watch.waits == set()


class RoundedProducts(TorchDispatchMode):
    """Products of numbers of 10 bits with sums in float32, as TF32 has them."""

    def __init__(self):
        super().__init__()
        self.rounded = self.transforms = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.transforms += name == "transformed"
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            assert torch.get_float32_matmul_precision() == "high"
            self.rounded += 1
            *first, a, b = args
            args = (*first, *((v.view(torch.int32) + 4096 & -8192).view(v.dtype) for v in (a, b)))
        return func(*args, **(kwargs or {}))


def test_tf32_has_the_gradient_up_to_its_precision_and_leaves_transforms_exact(monkeypatch):
    from operators.nn import encoder

    for module in (encoder, spectral):
        monkeypatch.setattr(module, "on_processor", lambda u: False)  # as on a GPU
    precisions = set()
    product = spectral._product

    def noted(*words):
        precisions.add(torch.get_float32_matmul_precision())
        return product(*words)

    monkeypatch.setattr(spectral, "_product", noted)
    loss, expected = gradient(AS_WRITTEN)
    with RoundedProducts() as products:
        found, g = gradient(replace(AS_WRITTEN, precision="tf32"))
    assert products.transforms == 8  # two in each of two layers, and their gradients
    assert precisions == {"highest"}
    assert products.rounded > 20
    assert found == pytest.approx(loss, rel=1e-4)
    assert 1e-7 < angle(g, expected) < 2e-3  # 10 bits: 2⁻¹¹ in each product
    assert torch.get_float32_matmul_precision() == "highest"


def test_transforms_stay_in_float32_in_a_step_of_bf16():
    a, _, _ = batch()
    torch.manual_seed(0)
    layer = spectral.SpectralConv1d(1, 3, modes=4)
    expected = spectral.transformed(a, "spectrum", 32, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(spectral.transformed(a, "spectrum", 32, 4), expected)
        assert layer(a).dtype == torch.float32


def test_how_it_is_run_is_chosen_for_the_device(monkeypatch):
    assert Acceleration.chosen(CPU) == AS_WRITTEN
    assert Acceleration.chosen(CPU, "float32", "on") == replace(AS_WRITTEN, compiled=True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(step_module, "find_spec", lambda name: object())
    cuda = torch.device("cuda")
    assert Acceleration.chosen(cuda) == Acceleration("tf32", compiled=True, graphed=True)
    assert Acceleration.chosen(cuda, "bf16", "off") == Acceleration("bf16")
    tuned = Acceleration.chosen(cuda, "tf32", "tuned")
    assert tuned == Acceleration("tf32", compiled=True, graphed=True, tuned=True)
    assert str(tuned) == "tf32, compiled and tuned, one CUDA graph"
    monkeypatch.setattr(step_module, "find_spec", lambda name: None)  # no compiler of kernels
    assert Acceleration.chosen(cuda) == Acceleration("tf32", graphed=True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert Acceleration.chosen(cuda).precision == "float32"
    monkeypatch.setattr(step_module, "find_spec", lambda name: None)
    for words, said in (
        ((cuda, "bf16"), r"capability 8\.0"),
        ((cuda, "auto", "on"), "needs triton"),
        ((cuda, "auto", "tuned"), "needs triton"),
        ((CPU, "tf32"), "precision tf32 needs a CUDA device"),
        ((CPU, "half"), "unknown precision 'half': known are auto, float32, tf32, bf16"),
        ((CPU, "auto", "yes"), "compile must be auto, on, off or tuned, got 'yes'"),
    ):
        with pytest.raises(AccelerationError, match=said):
            Acceleration.chosen(*words)


def test_convolutions_have_the_precision_of_products():
    before = torch.backends.cudnn.allow_tf32
    for precision in ("tf32", "float32"):
        with Acceleration(precision).products():
            assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
    assert torch.backends.cudnn.allow_tf32 == before


class Factorised(Operator):
    """u = W a, and a factor of W Wᵀ + 1 that nothing depends on."""

    dim = in_channels = out_channels = 1

    def __init__(self):
        super().__init__()
        self.map = torch.nn.Linear(1, 1)

    def forward(self, a, x, y=None):
        w = self.map.weight
        return self.map(a) + 0 * torch.linalg.cholesky_ex(w @ w.mT + 1).L.sum()


@pytest.mark.parametrize(("made", "calls"), [
    (small, ""),
    (lambda: Predictor(Factorised(), Normalizer.identity(1), Normalizer.identity(1)),
     " (it calls linalg_cholesky_ex, linalg_solve_triangular)"),
])  # fmt: skip
def test_a_capture_that_fails_is_said_and_the_step_goes_on(monkeypatch, made, calls):
    """With the solvers of a library that it calls, which are the likeliest cause; not its end."""

    def fails(*words):
        try:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(step_module, "Recorded", fails)
    torch.manual_seed(0)
    losses, _, step = trained(made(), RECORDED)
    torch.manual_seed(0)
    assert losses == trained(made(), AS_WRITTEN)[0]
    said = f"no CUDA graph: operation not permitted when stream is capturing{calls}"
    assert step.note == said


class CompilerError(Exception):
    """An error of a type that PyTorch does not document."""


@pytest.mark.parametrize(
    ("when", "graphed", "made"),
    [
        ("asked", False, with_batch_norm),
        *(("called", graphed, with_batch_norm) for graphed in (False, True)),
        ("called", True, lambda: small(attention_dropout=0.2)),
        ("derived", True, with_batch_norm),
        ("derived", False, lambda: small(attention_dropout=0.2)),
    ],
)
def test_a_compiler_that_fails_is_said_and_the_step_goes_on(monkeypatch, when, graphed, made):
    """Where it is asked, where the loss is called first, or where its gradient is."""
    tried = []

    class Derived(torch.autograd.Function):
        @staticmethod
        def forward(ctx, loss):
            return loss.clone()

        @staticmethod
        def backward(ctx, g):
            raise CompilerError("no kernel\nand more")

    def compile(f, **words):
        tried.append(when)

        def called(a, u):
            loss = f(a, u)  # moves the statistics of a batch, and the random numbers
            if when == "derived":
                return Derived.apply(loss)
            raise CompilerError("no kernel\nand more")

        if when == "asked":
            raise CompilerError("no kernel\nand more")
        return called

    monkeypatch.setattr(torch, "compile", compile)
    expected, weights, _ = trained(made(), AS_WRITTEN)
    losses, state, step = trained(made(), replace(AS_WRITTEN, compiled=True, graphed=graphed))
    assert losses == expected
    for name in weights:
        assert torch.equal(state[name], weights[name]), name
    assert len(tried) == 1
    end = ", one CUDA graph" * graphed
    assert str(step) == f"float32, as written{end}; not compiled: no kernel"


def test_memory_that_compiling_lacks_is_not_taken_for_a_compiler_that_fails(monkeypatch):
    def full(f, **words):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "compile", full)
    with pytest.raises(torch.OutOfMemoryError):
        trained(small(), replace(AS_WRITTEN, compiled=True))


class Pointwise(Operator):
    """u = W₂ tanh(W₁ a), at each point."""

    dim = in_channels = out_channels = 1

    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(1, width), torch.nn.Linear(width, 1)

    def forward(self, a, x, y=None):
        return self.down(self.up(a).tanh())


@pytest.mark.usefixtures("unchecked")
def test_every_step_is_compiled_however_many_there_were(monkeypatch):
    """PyTorch compiles one code eight times at most, and then goes on without."""
    traces, steps = [], []

    def counted(module, inputs):
        traces.append(module)
        return module.forward

    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **kw: compile(f, backend=counted, **kw))
    for number in range(1, 11):
        predictor = Predictor(Pointwise(number), Normalizer.identity(1), Normalizer.identity(1))
        _, _, step = trained(predictor, replace(AS_WRITTEN, compiled=True), steps=1, augment=None)
        assert len(traces) == number
        steps.append(step)
    a, u, _ = batch()
    for step in steps:  # what was compiled before is kept
        step(Batch(a, u), seed=0)
    assert len(traces) == 10
