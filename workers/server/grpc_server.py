"""PredictionService and ModelService of TensorFlow Serving over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable

import grpc

from ipulaunch.workers.server import messages
from ipulaunch.workers.server.prediction import find_version, predict, version_of
from ipulaunch.workers.server.status import ServingError, number_of
from ipulaunch.workers.server.tensors import to_array, to_proto
from ipulaunch.workers.server.versions import Versions

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
_METADATA = "signature_def"
_NOT_SERVED = {
    messages.PREDICTION_SERVICE: ("Classify", "Regress", "MultiInference"),
    messages.MODEL_SERVICE: ("HandleReloadConfigRequest",),
}

_Handler = Callable[[Any], Awaitable[Any]]


class GrpcServer:
    """Answers on one address, until it is stopped."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._server = grpc.aio.server(options=_UNLIMITED)
        prediction = {
            "Predict": _method(self._predict, messages.PredictRequest),
            "GetModelMetadata": _method(self._metadata, messages.GetModelMetadataRequest),
        }
        model = {"GetModelStatus": _method(self._status, messages.GetModelStatusRequest)}
        for service, methods in ((messages.PREDICTION_SERVICE, prediction), (messages.MODEL_SERVICE, model)):
            methods.update({name: _not_served(name) for name in _NOT_SERVED[service]})
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))

    async def start(self, host: str, port: int) -> int:
        """The port that it answers on; 0 asks for any that is free."""
        bound: int = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        if not bound:
            raise OSError(f"{host}:{port}")
        await self._server.start()
        return bound

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests and answer those that are in."""
        await self._server.stop(grace_s)

    async def _predict(self, request: Any) -> Any:
        if not request.HasField("model_spec"):
            raise ServingError("INVALID_ARGUMENT", "Missing ModelSpec")
        spec, inputs = request.model_spec, request.inputs
        answer = predict(
            self._versions, spec, inputs.keys(), lambda alias: to_array(inputs[alias], alias), request.output_filter
        )
        outputs = answer.of(await asyncio.wrap_future(answer.outputs))
        response = messages.PredictResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = answer.version.number
        response.model_spec.signature_name = answer.signature_name
        for alias, array in outputs.items():
            to_proto(array, response.outputs[alias])
        return response

    async def _metadata(self, request: Any) -> Any:
        if not request.HasField("model_spec"):
            raise ServingError("INVALID_ARGUMENT", "Missing ModelSpec")
        if not request.metadata_field:
            raise ServingError("INVALID_ARGUMENT", "GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != _METADATA:
                raise ServingError("INVALID_ARGUMENT", f"Metadata field {field} is not supported")
        version = find_version(self._versions, request.model_spec)
        every = messages.SignatureDefMap()
        for name, signature in version.model.signatures.items():
            every.signature_def[name].CopyFrom(signature.definition)
        response = messages.GetModelMetadataResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version.number
        response.metadata[_METADATA].type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        response.metadata[_METADATA].value = every.SerializeToString()
        return response

    async def _status(self, request: Any) -> Any:
        if not request.HasField("model_spec"):
            raise ServingError("INVALID_ARGUMENT", "Missing ModelSpec")
        spec = request.model_spec
        response = messages.GetModelStatusResponse()
        for number, status in self._versions.statuses(spec.name, version_of(spec)):
            entry = response.model_version_status.add(version=number, state=status.state)
            entry.status.error_code, entry.status.error_message = number_of(status.code), status.message
        return response


def _method(handler: _Handler, request: Any) -> Any:
    async def answer(message: Any, context: Any) -> Any:
        try:
            return await handler(message)
        except ServingError as error:
            await context.abort(getattr(grpc.StatusCode, error.code), error.message)

    return grpc.unary_unary_rpc_method_handler(answer, request.FromString, _serialized)


def _not_served(name: str) -> Any:
    async def refuse(message: bytes, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{name} is not served here; Predict is")

    return grpc.unary_unary_rpc_method_handler(refuse)


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
