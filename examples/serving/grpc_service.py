"""The gRPC services of `serve_locally.py`: PredictionService (Predict, GetModelMetadata) and ModelService."""

import grpc
import numpy as np
import tensorflow as tf
from batching import Arrays, BatchedModel, ServingError, invalid
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

_DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def add_services(server: grpc.Server, model: BatchedModel) -> None:
    """Registers both services."""
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(model), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(model), server)


def check_model(model: BatchedModel, spec: model_pb2.ModelSpec) -> None:
    """Raises: ServingError: the request names another model, version or version label."""
    version = f"Specific({spec.name}, {spec.version.value})" if spec.HasField("version") else f"Latest({spec.name})"
    has_version = not spec.HasField("version") or spec.version.value == model.version
    if spec.name != model.name or not has_version:
        raise ServingError(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {version}")
    if spec.version_label:
        raise invalid(f"Unrecognized servable version label: {spec.version_label}")


def metadata(model: BatchedModel) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """The signatures, with their inputs and outputs."""
    response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=_spec(model))
    signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=model.signatures)
    response.metadata["signature_def"].Pack(signatures)
    return response


def status(model: BatchedModel) -> get_model_status_pb2.GetModelStatusResponse:
    """The status of the only version: AVAILABLE."""
    available = get_model_status_pb2.ModelVersionStatus(
        version=model.version, state=get_model_status_pb2.ModelVersionStatus.AVAILABLE, status={"error_code": "OK"}
    )
    return get_model_status_pb2.GetModelStatusResponse(model_version_status=[available])


def _spec(model: BatchedModel, signature_name: str = "") -> model_pb2.ModelSpec:
    return model_pb2.ModelSpec(name=model.name, version={"value": model.version}, signature_name=signature_name)


def _answered(method):
    """Turns a `ServingError` of a method into the status of the call."""

    def answer(self, request, context):
        try:
            return method(self, request, context)
        except ServingError as error:
            context.abort(error.code, str(error))

    return answer


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; the rest is UNIMPLEMENTED."""

    def __init__(self, model: BatchedModel):
        self._model = model

    @_answered
    def Predict(self, request, context):
        check_model(self._model, request.model_spec)
        signature_name = request.model_spec.signature_name or _DEFAULT_SIGNATURE
        if signature_name not in self._model.signatures:
            message = f'Serving signature key "{signature_name}" not found.'
            raise ServingError(grpc.StatusCode.FAILED_PRECONDITION, message)
        inputs = {name: _array(name, proto) for name, proto in request.inputs.items()}
        names = request.output_filter or self._model.signatures[signature_name].outputs
        for name in names:
            if name not in self._model.signatures[signature_name].outputs:
                raise invalid(f"output tensor alias not found in signature: {name}")
        outputs: Arrays = self._model.call(signature_name, inputs, context.time_remaining())
        return predict_pb2.PredictResponse(
            model_spec=_spec(self._model, signature_name),
            outputs={name: tf.make_tensor_proto(outputs[name]) for name in names},
        )

    @_answered
    def GetModelMetadata(self, request, context):
        check_model(self._model, request.model_spec)
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid(f"metadata_field is to be signature_def, found {', '.join(request.metadata_field) or 'none'}")
        return metadata(self._model)


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus; the rest is UNIMPLEMENTED."""

    def __init__(self, model: BatchedModel):
        self._model = model

    @_answered
    def GetModelStatus(self, request, context):
        check_model(self._model, request.model_spec)
        return status(self._model)


def _array(name: str, proto) -> np.ndarray:
    try:
        array = tf.make_ndarray(proto)
    except (TypeError, ValueError, KeyError):  # an unknown dtype, or content that does not fill the shape
        raise invalid(f"input {name} is no tensor: its values do not fit its dtype and shape") from None
    if array.ndim == 0:
        raise invalid(f"input {name} is a scalar; batching needs a 0th dimension")
    return array
