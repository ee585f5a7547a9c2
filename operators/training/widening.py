"""Initial weights of an operator that has a further input: those of the operator without it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from operators.base import Function, Operator

Applied = Callable[[Operator, Function], Float[Tensor, "batch *grid c"]]


def start_as(wide: Operator, narrow: Operator, applied: Applied, a: Function) -> bool:
    """Let wide(a, b) = narrow(a) for every b: the weights of `narrow`, and 0 for those on b.

    Training then begins with the operator that does not know b, and learns what b changes. The
    weights on b are found by their gradient, which is 0 where b = 0 and only there.

    Args:
        wide: The operator with c + k input channels, of which b are the last; it gets weights.
        narrow: The same operator with c input channels.
        applied: (operator, inputs) -> outputs, an evaluation.
        a: Samples of c channels, shape (batch, *grid, c).

    Returns:
        Whether it could. Where weights on b cannot be told from others, as in operators whose
        layers grow with the number of channels, `wide` keeps its own.

    References: zero-initialised conditions: L. Zhang, A. Rao and M. Agrawala, Adding Conditional
        Control to Text-to-Image Diffusion Models, ICCV 2023, section 3.1.
    """
    own = {name: v.clone() for name, v in wide.state_dict().items()}
    found = _widened(wide, narrow, applied, a)
    if found is None:
        return False
    wide.load_state_dict(found)
    b = torch.ones_like(a[..., :1]).expand(*a.shape[:-1], wide.in_channels - narrow.in_channels)
    with torch.no_grad():
        u, same = applied(narrow, a), applied(wide, torch.cat([a, b], -1))
    if torch.allclose(u, same, rtol=1e-4, atol=1e-5 * float(u.abs().max())):
        return True
    wide.load_state_dict(own)
    return False


def _widened(
    wide: Operator, narrow: Operator, applied: Applied, a: Function
) -> dict[str, Tensor] | None:
    """The state of `wide`; None where it does not follow from that of `narrow`."""
    k, known = wide.in_channels - narrow.in_channels, narrow.state_dict()
    parameters, state = dict(wide.named_parameters()), wide.state_dict()
    if known.keys() != state.keys():
        return None
    u = applied(wide, torch.cat([a, a.new_zeros(*a.shape[:-1], k)], -1))
    found = torch.autograd.grad(
        u.abs().square().sum(), list(parameters.values()), allow_unused=True
    )
    gradients = dict(zip(parameters, found, strict=True))
    for name, v in known.items():
        shape = state[name].shape
        if v.shape == shape:
            state[name] = v
            continue
        gradient = gradients.get(name)
        axes = [i for i in range(v.ndim) if v.ndim == len(shape) and v.shape[i] != shape[i]]
        if gradient is None or len(axes) != 1:
            return None
        felt = gradient.movedim(axes[0], 0).reshape(shape[axes[0]], -1).abs().sum(1) > 0
        if int(felt.sum()) != v.shape[axes[0]]:
            return None
        places = felt.nonzero().flatten()
        state[name] = torch.zeros_like(state[name]).index_copy(axes[0], places, v)
    return state
