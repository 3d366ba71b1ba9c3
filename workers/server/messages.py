"""The messages of TensorFlow Serving that are spoken here, by their published field names and numbers.

They live in a pool of descriptors of their own: in one process they get along with the same messages of TensorFlow and
of `tensorflow-serving-api`, and a sender needs neither. A field that is not described is kept as it came.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGES = ("google.protobuf", "tensorflow", "tensorflow.serving")  # each refers to those before it

# Name of the field, its number, and its type: a scalar, a message, `repeated T` or `map T`, whose keys
# are strings. `T?` puts the field into the only oneof of its message. Enumerations are numbers: on the wire they are.
_Fields = Tuple[Tuple[str, int, str], ...]
_MESSAGES: Dict[str, _Fields] = {
    "google.protobuf.Int64Value": (("value", 1, "int64"),),
    "google.protobuf.Any": (("type_url", 1, "string"), ("value", 2, "bytes")),
    "tensorflow.TensorShapeProto": (
        ("dim", 2, "repeated tensorflow.TensorShapeProto.Dim"),
        ("unknown_rank", 3, "bool"),
    ),
    "tensorflow.TensorShapeProto.Dim": (("size", 1, "int64"), ("name", 2, "string")),
    "tensorflow.TensorProto": (
        ("dtype", 1, "int32"),
        ("tensor_shape", 2, "tensorflow.TensorShapeProto"),
        ("tensor_content", 4, "bytes"),
        ("float_val", 5, "repeated float"),
        ("double_val", 6, "repeated double"),
        ("int_val", 7, "repeated int32"),
        ("string_val", 8, "repeated bytes"),
        ("int64_val", 10, "repeated int64"),
        ("bool_val", 11, "repeated bool"),
        ("half_val", 13, "repeated int32"),
        ("uint32_val", 16, "repeated uint32"),
        ("uint64_val", 17, "repeated uint64"),
    ),
    "tensorflow.TensorInfo": (
        ("name", 1, "string"),
        ("dtype", 2, "int32"),
        ("tensor_shape", 3, "tensorflow.TensorShapeProto"),
    ),
    "tensorflow.SignatureDef": (
        ("inputs", 1, "map tensorflow.TensorInfo"),
        ("outputs", 2, "map tensorflow.TensorInfo"),
        ("method_name", 3, "string"),
    ),
    "tensorflow.MetaGraphDef": (
        ("meta_info_def", 1, "tensorflow.MetaGraphDef.MetaInfoDef"),
        ("signature_def", 5, "map tensorflow.SignatureDef"),
    ),
    "tensorflow.MetaGraphDef.MetaInfoDef": (("tags", 4, "repeated string"),),
    "tensorflow.SavedModel": (("meta_graphs", 2, "repeated tensorflow.MetaGraphDef"),),
    "tensorflow.serving.ModelSpec": (
        ("name", 1, "string"),
        ("version", 2, "google.protobuf.Int64Value?"),
        ("version_label", 4, "string?"),  # protobuf 3 wants the fields of a oneof side by side
        ("signature_name", 3, "string"),
    ),
    "tensorflow.serving.PredictRequest": (
        ("model_spec", 1, "tensorflow.serving.ModelSpec"),
        ("inputs", 2, "map tensorflow.TensorProto"),
        ("output_filter", 3, "repeated string"),
    ),
    "tensorflow.serving.PredictResponse": (
        ("outputs", 1, "map tensorflow.TensorProto"),
        ("model_spec", 2, "tensorflow.serving.ModelSpec"),
    ),
    "tensorflow.serving.SignatureDefMap": (("signature_def", 1, "map tensorflow.SignatureDef"),),
    "tensorflow.serving.GetModelMetadataRequest": (
        ("model_spec", 1, "tensorflow.serving.ModelSpec"),
        ("metadata_field", 2, "repeated string"),
    ),
    "tensorflow.serving.GetModelMetadataResponse": (
        ("model_spec", 1, "tensorflow.serving.ModelSpec"),
        ("metadata", 2, "map google.protobuf.Any"),
    ),
    "tensorflow.serving.StatusProto": (("error_code", 1, "int32"), ("error_message", 2, "string")),
    "tensorflow.serving.ModelVersionStatus": (
        ("version", 1, "int64"),
        ("state", 2, "int32"),
        ("status", 3, "tensorflow.serving.StatusProto"),
    ),
    "tensorflow.serving.GetModelStatusRequest": (("model_spec", 1, "tensorflow.serving.ModelSpec"),),
    "tensorflow.serving.GetModelStatusResponse": (
        ("model_version_status", 1, "repeated tensorflow.serving.ModelVersionStatus"),
    ),
}

_Field = descriptor_pb2.FieldDescriptorProto


def _file(package: str) -> descriptor_pb2.FileDescriptorProto:
    """The messages of one package."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    file.dependency.extend(f"{other}.proto" for other in _PACKAGES[: _PACKAGES.index(package)])
    made: Dict[str, descriptor_pb2.DescriptorProto] = {}
    for full_name, fields in _MESSAGES.items():
        parent, name = full_name.rsplit(".", 1)
        if parent in made:
            message = made[parent].nested_type.add(name=name)
        elif parent == package:
            message = file.message_type.add(name=name)
        else:
            continue
        made[full_name] = message
        for field in fields:
            _add_field(message, full_name, *field)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, full_name: str, name: str, number: int, kind: str) -> None:
    label = _Field.LABEL_REPEATED if kind.startswith(("repeated ", "map ")) else _Field.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if kind.endswith("?"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    word, _, value = kind.rstrip("?").rpartition(" ")
    if word == "map":
        entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "key", 1, "string")
        _add_field(entry, "", "value", 2, value)
        value = f"{full_name}.{entry.name}"
    if "." in value:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{value}"
    else:
        field.type = getattr(_Field, f"TYPE_{value.upper()}")


def _make_pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for package in _PACKAGES:
        pool.AddSerializedFile(_file(package).SerializeToString())
    return pool


_POOL = _make_pool()


def _message(name: str) -> Any:
    """The class of a message. protobuf 4.22 renamed the function that makes it; protobuf 5 has only the new one."""
    descriptor = _POOL.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_POOL).GetPrototype(descriptor)


TensorProto = _message("tensorflow.TensorProto")
SignatureDef = _message("tensorflow.SignatureDef")
SavedModel = _message("tensorflow.SavedModel")
SignatureDefMap = _message("tensorflow.serving.SignatureDefMap")
ModelSpec = _message("tensorflow.serving.ModelSpec")
PredictRequest = _message("tensorflow.serving.PredictRequest")
PredictResponse = _message("tensorflow.serving.PredictResponse")
GetModelMetadataRequest = _message("tensorflow.serving.GetModelMetadataRequest")
GetModelMetadataResponse = _message("tensorflow.serving.GetModelMetadataResponse")
GetModelStatusRequest = _message("tensorflow.serving.GetModelStatusRequest")
GetModelStatusResponse = _message("tensorflow.serving.GetModelStatusResponse")

# The services, by the names of their methods on the wire.
PREDICTION_SERVICE, MODEL_SERVICE = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"
