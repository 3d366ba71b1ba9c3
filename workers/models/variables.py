"""Variables as the host reads them.

Under PopDist every weight, hyperparameter and counter is a mirrored variable, which has a value, but converts neither
to an int nor to a float by itself.
"""

from __future__ import annotations

from typing import Any, Iterable, List

import numpy as np


def read_variable(variable: Any) -> np.ndarray:
    """The value of a variable, or of a tensor computed from some."""
    return np.asarray(variable.numpy())


def read_variables(variables: Iterable[Any]) -> List[np.ndarray]:
    """The values of several, in their order."""
    return [read_variable(variable) for variable in variables]
