"""From a scikit-learn `partial_fit` loop to one that does not forget: before, after, and after as a service.

    python examples/from_partial_fit.py                             # before and after, in this process
    python examples/from_partial_fit.py --address localhost:50051   # and as a service, with `make serve`

The stream is scikit-learn's digits, sorted by class, in batches of 32: the way data comes when classes turn up one
after another. Nobody says where an episode ends; the learner finds out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from sharp_client import Client
from sharp_engine.sklearn import SharpClassifier

Array = NDArray[Any]
SIZE = 32


def data() -> tuple[Array, Array, Array, Array]:
    """Examples to learn from, sorted by class, and examples to judge by."""
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16, y, stratify=y, random_state=0)
    order = np.argsort(y_train, kind="stable")
    return x_train[order], y_train[order], x_test, y_test


def batches(x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    """The stream."""
    for start in range(0, len(y), SIZE):
        yield x[start : start + SIZE], y[start : start + SIZE]


def before(x: Array, y: Array, x_test: Array, y_test: Array) -> float:
    """The loop as it was: every class must be announced, and each batch wipes out the ones before."""
    classifier = SGDClassifier(random_state=0)
    for part, labels in batches(x, y):
        classifier.partial_fit(part, labels, classes=np.arange(10))
    return float(classifier.score(x_test, y_test))


def after(x: Array, y: Array, x_test: Array, y_test: Array) -> float:
    """The same loop with another class in it."""
    classifier = SharpClassifier(random_state=0)
    for part, labels in batches(x, y):
        classifier.partial_fit(part, labels)
    return float(classifier.score(x_test, y_test))


def as_a_service(address: str, name: str, x: Array, y: Array, x_test: Array, y_test: Array) -> float:
    """The same stream to a server: other processes ask while this one teaches, and a restart loses nothing."""
    with Client(address) as client:
        learner = client.learner(name)
        with learner.learn(boundaries="automatic") as stream:
            for part, labels in batches(x, y):
                stream.send(part, labels)
            report = stream.end_episode()  # the stream is over, so its last episode is
            stream.wait()
        return learner.evaluate(x_test, y_test, min_model_version=report.model_version).accuracy


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Run the loops and show how much each knows in the end."""
    parser = argparse.ArgumentParser(description="A partial_fit loop, before and after.")
    parser.add_argument("--address", help="of a server; without one the service is left out")
    parser.add_argument("--learner", default="from-partial-fit")
    options = parser.parse_args(arguments)
    arrays = data()
    accuracy = {"SGDClassifier": before(*arrays), "SharpClassifier": after(*arrays)}
    if options.address is not None:
        accuracy["a server"] = as_a_service(options.address, options.learner, *arrays)
    for name, share in accuracy.items():
        print(f"{name:16} {share:.1%} of all ten digits right in the end")
    return accuracy


if __name__ == "__main__":
    main()
