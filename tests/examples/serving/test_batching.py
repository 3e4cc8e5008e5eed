from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from batching import BatchedModel, ServingError


def texts(*values: str) -> dict[str, np.ndarray]:
    return {"text": np.array([value.encode() for value in values], object)}


def weights(ids: list[list[int]]) -> dict[str, np.ndarray]:
    return {"text": np.array([b"ab"] * len(ids), object), "ids": np.array(ids, np.int32)}


def answers(export: str, calls: list[dict], signature="serving_default", **options) -> list[dict[str, np.ndarray]]:
    """The answers to concurrent calls."""
    model = BatchedModel("toy", export, **options)
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda call: model.call(signature, call), calls))


def test_concurrent_calls_share_a_batch_and_each_gets_its_own_rows(toy_export):
    calls = [texts("one", "two two"), texts("a b c"), texts("x", "y", "z")]
    # Runs as soon as the batch has 6 rows.
    results = answers(toy_export, calls, max_batch_size=6, batch_timeout=5.0)
    assert [result["rows_of_batch"].tolist() for result in results] == [[6, 6], [6], [6, 6, 6]]
    assert results[0]["words"].tolist() == [[b"one", b"", b""], [b"two", b"two", b""]]  # as wide as the other's
    assert results[0]["num_words"].tolist() == [1, 2]
    assert results[1]["words"].tolist() == [[b"a", b"b", b"c"]]
    assert results[2]["whole_bytes"].tolist() == [b"x", b"y", b"z"]


def test_a_call_that_does_not_fit_goes_into_the_next_batch_in_order(toy_export):
    results = answers(toy_export, [texts("a", "b"), texts("c", "d")], max_batch_size=3, batch_timeout=0.5)
    assert [result["rows_of_batch"].tolist() for result in results] == [[2, 2], [2, 2]]
    assert [result["whole_bytes"].tolist() for result in results] == [[b"a", b"b"], [b"c", b"d"]]


def test_rows_of_different_widths_are_not_merged(toy_export):
    calls = [weights([[1, 2]]), weights([[1, 2, 3]])]
    results = answers(toy_export, calls, signature="weigh", max_batch_size=4, batch_timeout=0.2)
    assert [result["weight"].tolist() for result in results] == [[5.0], [8.0]]


def test_a_call_without_rows_returns_no_rows(toy):
    assert toy.call("serving_default", {"text": np.array([], object)})["num_words"].tolist() == []


REFUSED = [
    ({}, "Missing but required: {ids,text}"),
    ({**weights([[1]]), "ids": np.zeros([1, 1], np.int64)}, "input ids .*int64"),
    ({**weights([[1]]), "ids": np.zeros([2, 1], np.int32)}, "equal 0th-dimension size"),
    (weights([[1]] * 7), "Task size 7"),
    (weights([[-1]]), "ids below 0"),  # by the model
]


@pytest.mark.parametrize("inputs, message", REFUSED)
def test_inputs_that_do_not_fit_the_signature_are_refused_and_the_next_call_is_served(toy, inputs, message):
    with pytest.raises(ServingError, match=message) as caught:
        toy.call("weigh", inputs)
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert toy.call("weigh", weights([[4]]))["weight"].tolist() == [6.0]
