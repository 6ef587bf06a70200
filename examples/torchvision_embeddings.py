"""Large images: a torchvision model turns them into embeddings here, an `mlp` learner on the server keeps learning.

    python examples/torchvision_embeddings.py photos --weights DEFAULT               # downloaded by torchvision
    python examples/torchvision_embeddings.py photos --weights resnet18.safetensors  # or .pth: a local state dict
    python examples/torchvision_embeddings.py photos                                 # random weights: to try it out

`photos` has one folder per class. Every fifth image is kept for judging; the others are taught in episodes of
`--classes` classes each. The server needs to know nothing of the model: it gets vectors. (To let the server run the
model instead, see docs/backbones.md.)
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torchvision
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names
from torchvision.transforms import v2

from sharp_client import Client, LearnerExistsError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""What torchvision's classification models were trained with."""


def embedder(model: str, weights: str | None) -> nn.Module:
    """The model without its classifier: images (n, 3, side, side) → what its last linear layer would see."""
    path = Path(weights) if weights is not None and Path(weights).suffix else None
    network = torchvision.models.get_model(model, weights=None if path else weights)
    if path is not None:
        tensors = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        network.load_state_dict(tensors)
    nodes = get_graph_node_names(network.eval())[1]
    last = nodes[nodes.index("flatten")] if "flatten" in nodes else nodes[-2]
    extractor: nn.Module = create_feature_extractor(network, {last: "embedding"})
    return extractor.eval()


@torch.inference_mode()
def embed(network: nn.Module, folder: Path, side: int) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    """Embeddings of all images of a folder, each of length 1, and the names of their folders."""
    look = v2.Compose(
        [v2.ToImage(), v2.Resize((side, side)), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    )
    photos = torchvision.datasets.ImageFolder(folder, look)
    parts, labels = [], []
    for images, targets in torch.utils.data.DataLoader(photos, batch_size=32):
        parts.append(nn.functional.normalize(network(images)["embedding"].flatten(1), dim=1))
        labels += [photos.classes[target] for target in targets.tolist()]
    return torch.cat(parts).numpy(), np.array(labels)


def main(arguments: Sequence[str] | None = None) -> float:
    """Embed, teach, judge; returns the accuracy on what was kept for judging."""
    parser = argparse.ArgumentParser(description="Teach a learner embeddings of a torchvision model.")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", default="resnet18", help="any of torchvision's classification models")
    parser.add_argument("--weights", help="DEFAULT, another name that torchvision knows, or a file")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--classes", type=int, default=2, help="classes per episode")
    parser.add_argument("--address", default="localhost:50051")
    parser.add_argument("--learner", default="photos")
    options = parser.parse_args(arguments)
    x, y = embed(embedder(options.model, options.weights), options.photos, options.side)
    judged = np.arange(len(y)) % 5 == 4
    names = np.unique(y)
    with Client(options.address) as client:
        learner = client.learner(options.learner)
        try:
            learner.create(overrides={"architecture.kind": "mlp"}, input_shape=x.shape[1:])
        except LearnerExistsError:
            pass  # it continues with what it knows
        with learner.learn() as stream:
            for start in range(0, len(names), options.classes):
                chosen = np.isin(y, names[start : start + options.classes]) & ~judged
                stream.send(x[chosen], y[chosen])
                report = stream.end_episode()
            stream.wait()
        result = learner.evaluate(x[judged], y[judged], min_model_version=report.model_version)
    print(f"{len(y)} embeddings of {x.shape[1]} values, {len(names)} classes: {result.accuracy:.1%} right")
    return result.accuracy


if __name__ == "__main__":
    main()
