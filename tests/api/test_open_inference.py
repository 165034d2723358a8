"""Tensors as clients of the Open Inference Protocol read them: KServe, Triton and others."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load

from tests.support.server import Server
from tests.support.variants import variants


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    """A finished analysis."""
    return server.analyse(model="bert", text="The cat sat on the mat.", measures=["entropy"])


def read_inference(answer: httpx.Response) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read an inference response of the Open Inference Protocol with binary tensors: its JSON, and the arrays."""
    length = int(answer.headers["Inference-Header-Content-Length"])
    document, rest, arrays = json.loads(answer.content[:length]), answer.content[length:], {}
    for output in document["outputs"]:
        size, types = output["parameters"]["binary_data_size"], {"FP32": "<f4", "FP16": "<f2", "UINT8": "|u1"}
        arrays[output["name"]] = np.frombuffer(rest[:size], types[output["datatype"]]).reshape(output["shape"])
        rest = rest[size:]
    assert not rest
    return document, arrays


@variants(
    ("path", "query"),
    [
        ("maps/weights", {}),
        ("maps/weights", {"layer": "1", "head": "1:3", "query": "2:", "dtype": "float16"}),
        ("maps/effective", {"dtype": "uint8"}),
        ("sums/weights", {"layer": 0, "head": 1}),
        ("grid/weights", {"without": "special"}),
        ("measures/entropy", {"unit": "bits"}),
    ],
)
def test_the_binary_extension_of_the_open_inference_protocol(
    server: Server, document: dict[str, Any], path: str, query: dict[str, Any]
) -> None:
    """It has the same tensors as safetensors, with their types and shapes, the model's name, and the metadata as parameters."""
    place = f"/analyses/{document['id']}/{path}"
    expected = load(server.get(place, params={**query, "format": "safetensors"}).content)
    answer = server.get(place, params={**query, "format": "open-inference"})
    head, arrays = read_inference(answer)
    assert head["model_name"] == document["model"]
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name])
    assert head["parameters"].get("unit") == query.get("unit")
