"""A request, checked as TensorFlow Serving checks it, and its answer: what gRPC and REST have in common."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence

from ipulaunch.configs.exports import SIGNATURE
from ipulaunch.workers.server.batching import Arrays
from ipulaunch.workers.server.saved_model import Signature, Tensor
from ipulaunch.workers.server.status import ServingError
from ipulaunch.workers.server.tensors import numpy_type, type_name, type_name_of
from ipulaunch.workers.server.versions import Version, Versions

_METHODS = ("tensorflow/serving/predict", "tensorflow/serving/classify", "tensorflow/serving/regress")


class Answer(NamedTuple):
    """What a request gets once its outputs are there."""

    version: Version
    signature_name: str
    wanted: Sequence[str]
    outputs: Future[Arrays]

    def of(self, outputs: Arrays) -> Arrays:
        return {alias: outputs[alias] for alias in self.wanted}


def find_version(versions: Versions, spec: Any) -> Version:
    """The version that a ModelSpec names."""
    if not spec.name:
        raise ServingError("INVALID_ARGUMENT", "ModelSpec has no name specified.")
    return versions.find(spec.name, version_of(spec))


def version_of(spec: Any) -> Optional[int]:
    """The number in a ModelSpec. There are no labels here: none has been given to a version."""
    choice = spec.WhichOneof("choice")
    if choice == "version_label":
        raise ServingError("INVALID_ARGUMENT", f"Unrecognized servable version label: {spec.version_label}")
    return spec.version.value if choice == "version" else None


def find_signature(version: Version, name: str) -> Signature:
    if name not in version.model.signatures:
        raise ServingError("FAILED_PRECONDITION", f'Serving signature key "{name}" not found.')
    signature = version.model.signatures[name]
    method = signature.definition.method_name
    if method not in _METHODS:
        names = ", ".join(_METHODS)
        raise ServingError(
            "INTERNAL", f"Expected prediction signature method_name to be one of {{{names}}}. Was: {method}"
        )
    return signature


def predict(
    versions: Versions, spec: Any, given: Collection[str], array: Callable[[str], Any], output_filter: Sequence[str]
) -> Answer:
    """Check a request and give it to the model: the names of its inputs, and what makes an array of each."""
    version = find_version(versions, spec)
    name = spec.signature_name or SIGNATURE
    signature = find_signature(version, name)
    _check_names(signature, given)
    arrays = {alias: array(alias) for alias in signature.inputs}
    wanted = _wanted(signature, output_filter)
    size = _check_values(name, signature, arrays)
    return Answer(version, name, wanted, version.submit(name, arrays, size))


def _check_names(signature: Signature, given: Collection[str]) -> None:
    known = sorted(signature.inputs)
    if len(given) != len(known):
        sent, wanted = ",".join(sorted(given)), ",".join(known)
        extra, missing = sorted({*given} - {*known}), sorted({*known} - {*given})
        raise ServingError(
            "INVALID_ARGUMENT",
            f"input size does not match signature: {len(given)}!={len(known)} len({{{sent}}}) != len({{{wanted}}})."
            f" Sent extra: {{{','.join(extra)}}}. Missing but required: {{{','.join(missing)}}}.",
        )
    for alias in given:
        if alias not in signature.inputs:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"input tensor alias not found in signature: {alias}."
                f" Inputs expected to be in the set {{{','.join(known)}}}.",
            )


def _wanted(signature: Signature, output_filter: Sequence[str]) -> List[str]:
    for place, alias in enumerate(output_filter):
        if alias not in signature.outputs:
            raise ServingError(
                "INVALID_ARGUMENT",
                f"output tensor alias not found in signature: {alias}"
                f" Outputs expected to be in the set {{{','.join(sorted(signature.outputs))}}}.",
            )
        if alias in output_filter[:place]:
            raise ServingError("INVALID_ARGUMENT", f"duplicate output tensor alias: {alias}")
    return list(output_filter) or list(signature.outputs)


def _check_values(name: str, signature: Signature, arrays: Dict[str, Any]) -> int:
    """How many samples there are. One wrong request must not spoil the batch of others, so it never gets there."""
    if not arrays:
        raise ServingError("INVALID_ARGUMENT", "Batching Run() must have at least one input tensor")
    for place, (alias, tensor) in enumerate(sorted(signature.inputs.items(), key=lambda item: item[1].name)):
        array = arrays[alias]
        if array.dtype != numpy_type(tensor.dtype):
            raise ServingError(
                "INVALID_ARGUMENT",
                f"Expects arg[{place}] to be {type_name(tensor.dtype)} but {type_name_of(array)} is provided",
            )
        if signature.batch is not None and not array.ndim:
            raise ServingError("INVALID_ARGUMENT", "Batching Run() input tensors must have at least one dimension")
        if not tensor.fits(array.shape, 0 if signature.batch is None else 1):
            raise ServingError("INVALID_ARGUMENT", _shape_text(name, tensor, array.shape))
    sizes = {array.shape[0] if array.ndim else 1 for array in arrays.values()}
    if signature.batch is not None and len(sizes) > 1:
        raise ServingError("INVALID_ARGUMENT", "Batching Run() input tensors must have equal 0th-dimension size")
    return int(sizes.pop())


def _shape_text(name: str, tensor: Tensor, shape: Sequence[int]) -> str:
    """The text of TensorFlow's own check, which TensorFlow Serving makes where it is told to."""
    expected = ",".join("?" if size < 0 else str(size) for size in tensor.shape or ())
    return f"signature {name} input shape is wrong, expected : [{expected}], actual: [{','.join(map(str, shape))}]"
