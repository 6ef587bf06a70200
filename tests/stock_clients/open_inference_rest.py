"""A prediction by tritonclient, over the Open Inference Protocol's REST half: ADDRESS LEARNER EXAMPLES → labels.

Once with binary data and once in JSON: the answers must be the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.http as triton  # type: ignore[import-not-found]


def main(address: str, learner: str, examples: str) -> None:
    """Ask whether the server lives, what the learner takes, and what the examples are."""
    x = np.array(json.loads(Path(examples).read_text()), np.float32)
    client = triton.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(learner)
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    metadata = client.get_model_metadata(learner)
    assert [tensor["shape"] for tensor in metadata["inputs"]] == [[-1, x.shape[1]]]
    answers = []
    for binary in (True, False):
        tensor = triton.InferInput(metadata["inputs"][0]["name"], list(x.shape), "FP32")
        tensor.set_data_from_numpy(x, binary_data=binary)
        wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("label", "vote_share", "novelty")]
        answer = client.infer(learner, [tensor], outputs=wanted)
        assert answer.as_numpy("vote_share").shape == answer.as_numpy("novelty").shape == (len(x),)
        assert answer.get_response()["model_version"] == metadata["versions"][-1]
        answers.append(answer.as_numpy("label").tolist())
    tensor.set_data_from_numpy(x)
    answers.append(client.infer(learner, [tensor]).as_numpy("label").tolist())  # all outputs, all of them binary
    assert answers[0] == answers[1] == answers[2]
    try:
        client.infer("nobody", [tensor])
    except triton.InferenceServerException as error:
        assert "there is no learner" in error.message()
    sys.stdout.write(json.dumps(answers[0]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
