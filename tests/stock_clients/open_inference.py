"""A prediction by tritonclient, over the Open Inference Protocol: ADDRESS LEARNER EXAMPLES → labels on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton  # type: ignore[import-not-found]


def main(address: str, learner: str, examples: str) -> None:
    """Ask whether the server lives, what the learner takes, and what the examples are."""
    x = np.array(json.loads(Path(examples).read_text()), np.float32)
    client = triton.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(learner)
    metadata = client.get_model_metadata(learner)
    assert [list(tensor.shape) for tensor in metadata.inputs] == [[-1, x.shape[1]]]
    tensor = triton.InferInput(metadata.inputs[0].name, list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    wanted = [triton.InferRequestedOutput(name) for name in ("label", "vote_share", "novelty")]
    answer = client.infer(learner, [tensor], outputs=wanted)
    assert answer.as_numpy("vote_share").shape == answer.as_numpy("novelty").shape == (len(x),)
    assert answer.get_response().model_version == metadata.versions[-1]
    sys.stdout.write(json.dumps(answer.as_numpy("label").tolist()) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
