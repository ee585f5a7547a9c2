"""SOAP against Adam and against its steps written out."""

import copy

import pytest
import torch

import operators.training.optimizers
from benchmarks.launches import counted
from operators.training.optimizers import SOAP, _as_matrices


@pytest.mark.parametrize("shape", [(7,), (5, 1), (1, 6)])
def test_is_adam_on_vectors(shape):
    torch.manual_seed(0)
    start, gradients = torch.randn(shape), torch.randn(10, *shape)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    soap = SOAP([ours], lr=0.1, betas=(0.9, 0.95))
    adam = torch.optim.Adam([theirs], lr=0.1, betas=(0.9, 0.95))
    for g in gradients:
        ours.grad, theirs.grad = g.clone(), g.clone()
        soap.step()
        adam.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("largest", [3, 4, 1024])
def test_every_step_is_that_of_one_matrix_written_out(monkeypatch, largest):
    """A gradient whose large directions change, so that the bases change their order.

    An axis of more than `largest` rows or columns has no basis.
    """
    monkeypatch.setattr(operators.training.optimizers, "LARGEST", largest)
    torch.manual_seed(0)
    every, lr, beta1, beta2, decay, eps = 3, 0.1, 0.9, 0.95, 0.8, 1e-8
    ours = torch.nn.Parameter(torch.randn(5, 4, dtype=torch.float64))
    w = ours.detach().clone()
    soap = SOAP([ours], lr=lr, betas=(beta1, beta2), basis_decay=decay, every=every, eps=eps)
    gradients = torch.randn(24, 5, 4, dtype=torch.float64)
    gradients[8:16, 0] *= 9
    gradients[16:, :, 1] *= 9
    mean, square = torch.zeros(5, 4).double(), torch.zeros(5, 4).double()
    reordered = 0
    for number, g in enumerate(gradients):
        ours.grad = g.clone()
        soap.step()
        if number == 0:  # sets up the bases, by falling eigenvalue
            left, right = g @ g.T, g.T @ g
            bases = [torch.linalg.eigh(a).eigenvectors.flip(1) for a in (left, right)]
            sides = [side for side, basis in enumerate(bases) if len(basis) <= largest]
            bases = [q if len(q) <= largest else torch.eye(len(q)).double() for q in bases]
            continue
        mean = beta1 * mean + (1 - beta1) * g
        rotated = bases[0].T @ g @ bases[1]
        square = beta2 * square + (1 - beta2) * rotated**2
        corrected = (bases[0].T @ mean @ bases[1]) / (1 - beta1**number)
        step = corrected / ((square / (1 - beta2**number)).sqrt() + eps)
        w = w - lr * bases[0] @ step @ bases[1].T
        left = decay * left + (1 - decay) * g @ g.T
        right = decay * right + (1 - decay) * g.T @ g
        if number == 1 or number % every == 0:
            for side in sides:
                a = (left, right)[side]
                quotients = [float(q @ a @ q) for q in bases[side].T]
                order = sorted(range(len(quotients)), key=lambda k: -quotients[k])
                reordered += order != sorted(order)
                # each entry of the second moment stays with the direction that it is of
                square = square[order] if side == 0 else square[:, order]
                bases[side] = torch.linalg.qr(a @ bases[side][:, order]).Q
        torch.testing.assert_close(ours.detach(), w, rtol=1e-9, atol=1e-9)
    assert reordered > 2 or not sides


def test_the_state_has_no_basis_of_a_large_dimension():
    p = torch.nn.Parameter(torch.zeros(2, operators.training.optimizers.LARGEST + 1))
    soap = SOAP([p], lr=0.1)
    for _ in range(2):
        p.grad = torch.ones_like(p)
        soap.step()
    assert soap.state[p].keys() == {"step", "mean", "square", "left", "q_left"}
    other = torch.nn.Parameter(p.detach().clone())
    copied = SOAP([other], lr=0.1)
    copied.load_state_dict(copy.deepcopy(soap.state_dict()))
    for optimizer, weight in ((soap, p), (copied, other)):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert torch.equal(p, other)


def test_a_stack_of_matrices_is_treated_one_by_one():
    torch.manual_seed(0)
    stack = torch.nn.Parameter(torch.zeros(3, 5, 4))
    singles = [torch.nn.Parameter(torch.zeros(5, 4)) for _ in range(3)]
    one, many = SOAP([stack], lr=0.1), SOAP(singles, lr=0.1)
    for g in torch.randn(12, 3, 5, 4):
        stack.grad = g.clone()
        for single, part in zip(singles, g, strict=True):
            single.grad = part.clone()
        one.step()
        many.step()
    expected = torch.stack([single.data for single in singles])
    torch.testing.assert_close(stack.data, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "matrices"),
    [((4, 6), (1, 4, 6)), ((3, 4, 6), (3, 4, 6)), ((5, 4, 3, 3), (1, 5, 36)),
     ((7, 4, 6, 2), (7, 4, 12)), ((2, 3, 3, 4, 6, 2), (18, 4, 12))],
)  # fmt: skip
def test_every_kind_of_weight_is_a_stack_of_matrices(shape, matrices):
    """A matrix, three maps, a convolution, complex weights of 1-D and of 2-D modes: bases stay
    as small as channels are."""
    assert _as_matrices(torch.zeros(shape)).shape == matrices


SHAPES = [(5, 4), (4, 5), (3, 5, 4), (4,), (1, 6), (5, 4), (4, 4), (2, 4, 2, 2)]


def gradients(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in SHAPES]


def parameters():
    return [torch.nn.Parameter(g) for g in gradients(0)]


def stepped(optimizer, parameters, steps):
    for seed in steps:
        for p, g in zip(parameters, gradients(seed), strict=True):
            p.grad = g
        optimizer.step()


def test_parameters_that_share_shapes_and_bases_do_not_mix():
    """All in one optimizer, and each in its own."""
    together, alone = parameters(), parameters()
    stepped(SOAP(together, lr=0.1, every=3), together, range(1, 12))
    for i, p in enumerate(alone):
        optimizer = SOAP([p], lr=0.1, every=3)
        for seed in range(1, 12):
            p.grad = gradients(seed)[i]
            optimizer.step()
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)  # products of other batches


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_loaded_state_goes_on_with_the_same_bits(after):
    ours, theirs = parameters(), parameters()
    first = SOAP(ours, lr=0.1, every=3)
    stepped(first, ours, range(1, after + 1))
    with torch.no_grad():
        for p, q in zip(ours, theirs, strict=True):
            q.copy_(p)
    second = SOAP(theirs, lr=0.1, every=3)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert {key for state in first.state_dict()["state"].values() for key in state} == {
        "step", "mean", "square", "left", "right", "q_left", "q_right",
    }  # fmt: skip
    for optimizer, own in ((first, ours), (second, theirs)):
        stepped(optimizer, own, range(after + 1, 12))
    for p, q in zip(ours, theirs, strict=True):
        assert torch.equal(p, q)


def test_a_parameter_without_a_gradient_stays_where_it_is():
    used, unused = (torch.nn.Parameter(torch.ones(3, 3)) for _ in range(2))
    optimizer = SOAP([used, unused], lr=0.1)
    for _ in range(4):
        used.grad = torch.randn(3, 3)
        optimizer.step()
    assert torch.equal(unused, torch.ones(3, 3))
    assert not torch.equal(used, torch.ones(3, 3))


def test_the_rate_of_each_step_counts():
    """As a schedule sets it: a rate of 0 leaves the weights alone."""
    ours = parameters()
    optimizer = SOAP(ours, lr=0.1)
    stepped(optimizer, ours, range(1, 4))
    before = [p.detach().clone() for p in ours]
    optimizer.param_groups[0]["lr"] = 0.0
    stepped(optimizer, ours, [4])
    assert all(torch.equal(p, q) for p, q in zip(ours, before, strict=True))


def test_a_step_launches_few_kernels_between_and_at_updates_of_the_bases():
    """As a Galerkin Transformer has them; as many for four layers as for forty."""

    def kernels(layers):
        shapes = [(3, 96, 96), (192, 96), (192,), (96, 192), (96,), (96, 97), (96,)] * layers
        with counted():
            own = [torch.nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes]
            optimizer = SOAP(own, lr=0.1)
            works = []
            for _ in range(11):
                for p in own:
                    p.grad = torch.empty_like(p)
                with counted() as work:
                    optimizer.step()
                works.append(work.kernels)
        return works[-2:]

    ordinary, tenth = kernels(4)
    assert ordinary <= 60
    assert tenth <= 120
    assert kernels(12)[0] <= ordinary + 20  # lists of more tensors than a launch takes


def test_a_state_with_a_basis_of_a_large_dimension_is_refused(monkeypatch):
    p = torch.nn.Parameter(torch.zeros(2, 5))
    soap = SOAP([p], lr=0.1)
    p.grad = torch.ones_like(p)
    soap.step()
    state = copy.deepcopy(soap.state_dict())
    monkeypatch.setattr(operators.training.optimizers, "LARGEST", 4)
    with pytest.raises(ValueError, match="at most 4 dimensions, this state has 5: it is of an ear"):
        SOAP([p], lr=0.1).load_state_dict(state)
