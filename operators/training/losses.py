"""The losses of experiments by name, and those that are not relative errors.

A loss is a function (prediction, target, input[, weight]) -> scalar; see `operators.norms`.
"""

from operators.norms import RelativeH1, RelativeL1, RelativeL2, WeightedH1
from operators.registry import register_loss

register_loss("l2", RelativeL2)
register_loss("l1", RelativeL1)
register_loss("h1", RelativeH1)
register_loss("weighted-h1", WeightedH1)
