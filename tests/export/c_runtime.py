"""Runs a SavedModel in TensorFlow's own C++ runtime, without TensorFlow's Python: by ctypes on its C interface.

    python c_runtime.py TENSORFLOW_DIRECTORY [LIBRARY_OF_OPERATIONS ...] < request.json > reply.json

The libraries of TensorFlow are those of pip's package, in its directory. The request names the SavedModel and the
calls, each with values for tensors by name, and the names of the tensors to compute. An error of the runtime is the
reply.
This loader and these kernels are what TensorFlow Serving is built on; its server is not here.
"""

import base64
import ctypes
import json
import math
import os
import sys

_STRING = 7  # TF_DataType
_NUMBERS = {1: ctypes.c_float, 3: ctypes.c_int32, 9: ctypes.c_int64, 10: ctypes.c_bool}
_STRING_SIZE = 24  # of a TF_TString


class Output(ctypes.Structure):
    """TF_Output: a tensor, as an operation and which of its outputs."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class RuntimeFailure(Exception):
    """What the runtime says of a call that failed."""


class Runtime:
    """The functions of the C interface that are needed, and a status."""

    def __init__(self, directory: str):
        # Operations from elsewhere find this one by its name once it is loaded for all.
        ctypes.CDLL(os.path.join(directory, "libtensorflow_framework.so.2"), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(os.path.join(directory, "libtensorflow_cc.so.2"), mode=ctypes.RTLD_GLOBAL)
        self.status = self.call("TF_NewStatus")

    def call(self, name: str, *arguments, returns=ctypes.c_void_p):
        """A function whose integers are pointers or sizes unless they have a type."""
        function = getattr(self.library, name)
        function.restype = returns
        return function(*(ctypes.c_void_p(each) if isinstance(each, int) else each for each in arguments))

    def checked(self, name: str, *arguments):
        result = self.call(name, *arguments, self.status)
        if self.call("TF_GetCode", self.status, returns=ctypes.c_int):
            raise RuntimeFailure(self.call("TF_Message", self.status, returns=ctypes.c_char_p).decode())
        return result


class Session:
    """A loaded SavedModel."""

    def __init__(self, runtime: Runtime, saved_model: str):
        self.runtime = runtime
        self.graph = runtime.call("TF_NewGraph")
        options, tags = runtime.call("TF_NewSessionOptions"), (ctypes.c_char_p * 1)(b"serve")
        arguments = (options, None, saved_model.encode(), tags, ctypes.c_int(1), self.graph, None)
        self.session = runtime.checked("TF_LoadSessionFromSavedModel", *arguments)

    def run(self, inputs: dict[str, dict], outputs: list[str]) -> list[dict]:
        names, values = list(inputs), [self._tensor(**value) for value in inputs.values()]
        results = (ctypes.c_void_p * len(outputs))()
        self.runtime.checked(
            "TF_SessionRun", self.session, None,
            self._outputs(names), (ctypes.c_void_p * len(values))(*values), ctypes.c_int(len(values)),
            self._outputs(outputs), results, ctypes.c_int(len(outputs)),
            None, ctypes.c_int(0), None,
        )  # fmt: skip
        return [self._value(tensor) for tensor in results]

    def _outputs(self, names: list[str]) -> ctypes.Array:
        array = (Output * len(names))()
        for place, name in zip(array, names, strict=True):
            operation, _, index = name.partition(":")
            place.operation = self.runtime.call("TF_GraphOperationByName", self.graph, operation.encode())
            place.index = int(index)
        return array

    def _tensor(self, dtype: int, shape: list[int], values: list) -> int:
        size = math.prod(shape) * (_STRING_SIZE if dtype == _STRING else ctypes.sizeof(_NUMBERS[dtype]))
        dimensions = (ctypes.c_int64 * len(shape))(*shape)
        tensor = self.runtime.call(
            "TF_AllocateTensor", ctypes.c_int(dtype), dimensions, ctypes.c_int(len(shape)), ctypes.c_size_t(size)
        )
        data = self.runtime.call("TF_TensorData", tensor)
        if dtype != _STRING:
            source = (_NUMBERS[dtype] * len(values))(*values)
            ctypes.memmove(data or 0, source, size)
            return tensor
        for index, text in enumerate(map(base64.b64decode, values)):
            place = data + index * _STRING_SIZE
            self.runtime.call("TF_StringInit", place)
            self.runtime.call("TF_StringCopy", place, text, ctypes.c_size_t(len(text)))
        return tensor

    def _value(self, tensor: int) -> dict:
        dtype = self.runtime.call("TF_TensorType", tensor, returns=ctypes.c_int)
        rank = self.runtime.call("TF_NumDims", tensor, returns=ctypes.c_int)
        shape = [self.runtime.call("TF_Dim", tensor, ctypes.c_int(i), returns=ctypes.c_int64) for i in range(rank)]
        data, count = self.runtime.call("TF_TensorData", tensor), math.prod(shape)
        if dtype != _STRING:
            values = list((_NUMBERS[dtype] * count).from_address(data)) if count else []
            return {"dtype": dtype, "shape": shape, "values": values}
        texts = [self._text(data + index * _STRING_SIZE) for index in range(count)]
        return {"dtype": dtype, "shape": shape, "values": [base64.b64encode(text).decode() for text in texts]}

    def _text(self, place: int) -> bytes:
        size = self.runtime.call("TF_StringGetSize", place, returns=ctypes.c_size_t)
        return ctypes.string_at(self.runtime.call("TF_StringGetDataPointer", place), size)


def main() -> int:
    directory, *libraries = sys.argv[1:]
    request = json.load(sys.stdin)
    try:
        runtime = Runtime(directory)
        for library in libraries:
            runtime.checked("TF_LoadLibrary", library.encode())
        session = Session(runtime, request["saved_model"])
        reply = {"outputs": [session.run(**call) for call in request["calls"]]}
    except RuntimeFailure as failure:
        reply = {"error": str(failure)}
    assert "tensorflow" not in sys.modules
    json.dump(reply, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
