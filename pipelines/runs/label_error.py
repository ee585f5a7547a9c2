"""What the labels of a test split are off by, as their store states it."""

import numpy as np

from pdegen.store.reading import open_sealed
from pipelines.runs.data import Source

_SOLVED = "u"  # what `error` and `label_error` of a store are of


def label_error(source: Source) -> float | None:
    """Mean relative L² error of the labels: over the test split where the solver states one for
    each sample, else over the samples that were compared to a reference.

    None where the store states none, as of exact solutions, or what is learned is not the solution.
    """
    names, store = source.experiment.variables[1], open_sealed(source.url)
    if _SOLVED not in ((names,) if isinstance(names, str) else names):
        return None
    if "error" in store.variables:
        test = range(*store.said.splits["test"])
        values = np.asarray(store.values("error", test))
        values = values[np.isfinite(values)]
        return float(np.mean(values)) if len(values) else None
    measured = store.said.label_error
    return float(np.mean(measured.relative_l2)) if measured else None
