"""A prediction by grpc-requests, which knows the API from the server's reflection only: ADDRESS LEARNER EXAMPLES."""

from __future__ import annotations

import base64
import json
import struct
import sys
from pathlib import Path

from grpc_requests import Client  # type: ignore[import-not-found]


def main(address: str, learner: str, examples: str) -> None:
    """Find the service, send the examples as a tensor, read the labels."""
    rows = json.loads(Path(examples).read_text())
    client = Client.get_by_endpoint(address)
    for name in ("sharp.v1.Learning", "sharp.v1.Prediction", "sharp.v1.Admin", "inference.GRPCInferenceService"):
        assert name in client.service_names, client.service_names
    values = [value for row in rows for value in row]
    data = base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
    tensor = {"dtype": "DTYPE_FLOAT32", "shape": [len(rows), len(rows[0])], "data": data}
    request = {"learner": learner, "inputs": {"tensor": tensor}}
    answer = client.request("sharp.v1.Prediction", "Predict", request)
    labels = [int(label) for label in answer["labels"]["numbers"]["values"]]
    sys.stdout.write(json.dumps(labels) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
