"""Exports for TensorFlow Serving: the SDK's checks, and a SavedModel that computes with the weights as constants."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

import tensorflow as tf

from ipu_standin.options import Options
from ipu_standin.running import check_model, replicas
from ipu_standin.sdk import Sdk

# What the runtime of an executable takes in and gives out.
_TYPES = ("int8", "int32", "uint8", "float16", "float32")


def export_keras(
    sdk: Sdk,
    model: Any,
    options: Options,
    export_dir: str,
    batch_size: Optional[int],
    output_names: Any,
    *steps: Any,
) -> Any:
    """What the method of a model does; the last of `steps` empties the directory, the others run on the host."""
    *on_host, purge = steps or (False,)
    if any(step is not None for step in on_host):
        raise NotImplementedError("the stand-in does not act out steps on the host")
    _require_empty(Path(export_dir), purge)
    specs = _specs(model, batch_size)
    if not options.is_compiled:
        raise ValueError("the steps of an execution are None: compile() comes first")
    replicas(sdk, options)
    check_model(model, options, "predict")
    names = _names(output_names)
    with model.distribute_strategy.scope():
        traced = tf.function(lambda *args: model(args, training=False)).get_concrete_function(*specs)
    # The compiler comes after the checks of Keras.
    options.check_run(sdk, options.steps_per_execution, is_training=False)
    return _save(_frozen(traced), specs, names, export_dir)


def _require_empty(directory: Path, purge: bool) -> None:
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    if not purge:
        raise ValueError(f"directory {directory} is not empty")
    shutil.rmtree(directory)


def _specs(model: Any, batch_size: Optional[int]) -> List[tf.TensorSpec]:
    """The inputs, under the names of their layers."""
    specs = []
    for tensor, name in zip(model.inputs, model.input_names):
        shape = tensor.shape.as_list() if batch_size is None else [batch_size, *tensor.shape.as_list()[1:]]
        if None in shape:
            raise ValueError(f"not all dimensions of {name} are known: {shape}")
        specs.append(tf.TensorSpec(shape, tensor.dtype, name))
    return specs


def _names(given: Any) -> Optional[List[str]]:
    names = [given] if isinstance(given, str) else given
    if names is not None and not isinstance(names, list):
        raise TypeError(f"output_names is a text or a list, not {type(given).__name__}")
    return names or None


def _frozen(traced: Any) -> Any:
    """The function with variables as constants: the executable has no others."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    return convert_variables_to_constants_v2(traced)


def _save(program: Any, specs: Sequence[tf.TensorSpec], names: Optional[List[str]], export_dir: str) -> Any:
    """A SavedModel around the program, with an asset where the SDK has its executable."""
    served = tf.Module()
    with tempfile.TemporaryDirectory() as directory:
        executable = Path(directory) / f"application_{uuid.uuid4()}.popef"
        executable.write_bytes(b"an executable of the stand-in")
        served.filename = tf.saved_model.Asset(str(executable))

        def predict(*args: Any) -> Union[Dict[str, Any], List[Any]]:
            for tensor in (*args, *program.outputs):
                if tensor.dtype.name not in _TYPES:
                    raise KeyError(tensor.dtype)  # the runtime looks it up
            results = tf.nest.flatten(program(*args))
            if names is None:
                return results
            if len(names) != len(results):
                raise ValueError(f"{len(names)} output_names for {len(results)} outputs")
            return dict(zip(names, results))

        served.predict = tf.function(predict, input_signature=specs)
        tf.saved_model.save(served, export_dir)
    return served.predict
