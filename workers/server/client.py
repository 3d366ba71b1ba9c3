"""A connection to a server that speaks the protocol of TensorFlow Serving, without TensorFlow."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import grpc

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.exports import SIGNATURE
from ipulaunch.workers.server import messages
from ipulaunch.workers.server.saved_model import Tensor
from ipulaunch.workers.server.tensors import shape_of

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_ANOTHER = "dummy_model"  # no server has it: what it answers shows that it is up
_LEAST_S = 10.0  # for an answer of a server that is up, on a busy machine


class Signature(NamedTuple):
    """What a model on a server takes."""

    alias: str
    input: Tensor


class ServerError(Exception):
    """A call that failed, with the code and the text of the server."""

    def __init__(self, error: Any) -> None:
        self.code = error.code().name
        super().__init__(f"{self.code}: {error.details()}")


class Client:
    """Calls one server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address, options=_UNLIMITED)
        self.predict = self._method("Predict", None, None)  # bytes in and out: senders prepare theirs
        self._metadata = self._method("GetModelMetadata", messages.GetModelMetadataResponse.FromString)

    def _method(self, name: str, answer: Any, request: Any = lambda message: message.SerializeToString()) -> Any:
        return self._channel.unary_unary(f"/{messages.PREDICTION_SERVICE}/{name}", request, answer)

    def wait_until_up(self, seconds: float) -> None:
        """Wait until the server answers anything, as it does a request for a model that it cannot have.

        One that is said to be up, with 0 seconds to wait, and refuses connections has ended.
        """
        deadline = time.monotonic() + seconds
        request = messages.PredictRequest()
        request.model_spec.name = _ANOTHER
        while True:
            left_s = deadline - time.monotonic()
            try:
                self.predict(request.SerializeToString(), timeout=max(left_s, _LEAST_S), wait_for_ready=seconds > 0)
                return
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return
                if left_s <= 0 or error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    hint = "start one with ipulaunch serve, or check its address"
                    text = f"no server answers at {self.address}: {ServerError(error)}"
                    raise NotReadyError(text, hint=hint) from error

    def signature(self, model: str, seconds: float) -> Signature:
        """What a model takes: it has to have one input."""
        request = messages.GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = model
        try:
            answer = self._metadata(request, timeout=seconds)
        except grpc.RpcError as error:
            raise ServerError(error) from error
        found = messages.SignatureDefMap.FromString(answer.metadata["signature_def"].value)
        definition = found.signature_def[SIGNATURE]
        ((alias, info),) = definition.inputs.items()
        tensor = Tensor(info.name, info.dtype, shape_of(info.tensor_shape))
        return Signature(alias, tensor)

    def close(self) -> None:
        self._channel.close()
