"""Make the inputs that all contenders of a case run on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


def inputs_in(file: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file by name."""
    with np.load(file) as arrays:
        return dict(arrays)
