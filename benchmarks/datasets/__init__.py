"""Examples to learn from: read from disk as they lie there, or made up. The test set is read only when asked for."""

from benchmarks.datasets.loading import DATASETS, HELD_OUT, Dataset, Examples, load, prepare, stratified

__all__ = ["DATASETS", "HELD_OUT", "Dataset", "Examples", "load", "prepare", "stratified"]
