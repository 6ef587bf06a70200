"""Data sets as the documents call them, in the order they are told."""

from __future__ import annotations

NAMES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "emnist-letters": "EMNIST letters",
    "letters": "letters",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "banking77": "Banking77 embeddings",
}


def name_of(dataset: str) -> str:
    """A data set's name; a user's own is called as it is.

    >>> name_of("mnist"), name_of("folder")
    ('MNIST', 'folder')
    """
    return NAMES.get(dataset, dataset)


def place_of(dataset: str) -> int:
    """Where it stands; those unknown come last."""
    return list(NAMES).index(dataset) if dataset in NAMES else len(NAMES)
