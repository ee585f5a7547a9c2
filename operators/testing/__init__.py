"""The contract of all operators, as a test of anybody's operator.

>>> from operators.models.fno import FNO
>>> from operators.testing import Expected, check_operator
>>> checked = check_operator(FNO, Expected(steps=0), dims=[1], width=8, depth=1, modes=4)
>>> checked[0]
'in 1-D: the gradient reaches every parameter'
"""

from operators.testing.checks import ContractError
from operators.testing.contract import Expected, check_operator

__all__ = ["ContractError", "Expected", "check_operator"]
