"""Half precision as CUDA has it: the rules are PyTorch's, and every operator keeps to them."""

import pytest
import torch

from operators.data import Batch
from operators.norms import RelativeL2
from operators.testing.domains import COUNTS, SHARED, kind_of
from operators.testing.domains import points_of as points
from operators.training.step import AS_WRITTEN, Acceleration, Step
from operators.transforms import Normalizer, Predictor
from tests.operators.cases import CASES, FIRST
from tests.operators.cuda_rules import as_on_cuda, in_half, rules
from tests.operators.test_contract_domains import DECLARED, built

BF16 = Acceleration("bf16")


def test_the_rules_are_all_that_pytorch_has_for_cuda():
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    there = {name.removeprefix("aten::") for name in registered}
    apart = {"cudnn_convolution", "cudnn_convolution_transpose", "_cudnn_rnn",
             "binary_cross_entropy", "norm.Scalar", "norm.ScalarOpt_dim"}  # fmt: skip
    # names of axes, which PyTorch 2.13 has no more, are registered with what is here
    assert there - apart <= set(rules())
    assert len(rules()) > 90


def test_half_precision_is_that_of_cuda_within_and_that_of_the_processor_afterwards():
    u = torch.eye(3)
    with in_half():
        with as_on_cuda():
            v = u @ u
            assert v.dtype == torch.cat([v, v]).dtype == torch.nn.functional.gelu(v).dtype
            assert v.dtype == torch.bfloat16
            assert v.softmax(-1).dtype == v.sum().dtype == v.pow(2).dtype == torch.float32
            assert torch.cross(v, u, dim=0).dtype == torch.float32
            assert (u.double() @ u.double()).exp().dtype == torch.float64
            for call in (torch.fft.rfft, torch.linalg.qr, lambda v: torch.complex(v, v)):
                with pytest.raises(RuntimeError, match=r"BFloat16|no kernel"):
                    call(v)
        assert torch.fft.rfft(u @ u).dtype == torch.complex64


SLOW = pytest.mark.slow  # other layers of the same operators
WAYS = ("periodic", "curvilinear by sample", "cloud padded")


@pytest.mark.usefixtures("unchecked")  # the checks of shapes take most of the time
@pytest.mark.parametrize(
    ("label", "dim", "way"),
    [
        pytest.param(*case.values, id=case.id, marks=() if case.values[:2] in FIRST else SLOW)
        for case in DECLARED
        if case.values[2] in WAYS and not CASES[case.values[0]].foreign
    ],
)
def test_a_step_in_half_precision_is_that_in_float32_up_to_its_rounding(label, dim, way):
    """On grids of other sizes than the operator's own too; the gradient reaches every parameter."""
    x = points(way, dim).float()
    by_sample = way not in SHARED
    torch.manual_seed(3)
    a, u = torch.randn(2, 3, *x.shape[int(by_sample) : -1], 1)
    own = {"x": x} if by_sample else {}
    if way == "cloud padded":
        own["mask"] = torch.arange(a.shape[1]) < torch.tensor(COUNTS)[:, None]

    def gradient(acceleration):
        torch.manual_seed(1)
        model = built(label, dim, kind_of(way))
        if not model.points_by_sample:
            model.adapt([torch.randn(20, *x.shape[:-1], 1)], x)
        predictor = Predictor(model, Normalizer.identity(1), Normalizer.identity(1)).train()
        shared = None if by_sample else x
        step = Step(predictor, shared, None, RelativeL2(), 1e9, acceleration=acceleration)
        loss = step(Batch(a, u, **own), seed=0)
        return float(loss), [p.grad for p in predictor.parameters()], step.note

    expected, written, _ = gradient(AS_WRITTEN)
    with as_on_cuda():
        loss, found, note = gradient(BF16)
    assert note == ""
    assert loss == pytest.approx(expected, rel=5e-2)  # 8 bits in each product
    assert [g is None for g in found] == [g is None for g in written]
    assert all(g is None or g.isfinite().all() for g in found)
