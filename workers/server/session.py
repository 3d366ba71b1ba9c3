"""One version of a model in memory, run as TensorFlow Serving runs it: a session on the graph of its SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import tensorflow as tf

from ipulaunch.configs.exports import SIGNATURE
from ipulaunch.workers.server.saved_model import Signature, signatures
from ipulaunch.workers.server.status import ServingError, name_of
from ipulaunch.workers.server.tensors import numpy_type


class LoadedModel:
    """A SavedModel whose variables are loaded, and which has answered once."""

    def __init__(self, directory: Path) -> None:
        self.signatures = signatures(directory)
        self._calls: Dict[str, Callable[..., List[Any]]] = {}
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        try:
            with self._session.graph.as_default():
                tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], str(directory))
            if SIGNATURE in self.signatures:
                self._warm_up(self.signatures[SIGNATURE])
        except BaseException:
            self.close()
            raise

    def run(self, name: str, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """All outputs of a signature, for arrays of the right types."""
        signature = self.signatures[name]
        if name not in self._calls:
            feeds = [signature.inputs[alias].name for alias in signature.inputs]
            fetches = [signature.outputs[alias].name for alias in signature.outputs]
            self._calls[name] = self._session.make_callable(fetches, feed_list=feeds)
        try:
            values = self._calls[name](*(inputs[alias] for alias in signature.inputs))
        except tf.errors.OpError as error:
            raise ServingError(name_of(error.error_code), error.message) from error
        return {alias: np.asarray(value) for alias, value in zip(signature.outputs, values)}

    def close(self) -> None:
        self._calls.clear()
        self._session.close()

    def _warm_up(self, signature: Signature) -> None:
        """The first call allocates and compiles: no request waits for it."""
        shapes = {alias: tensor.shape for alias, tensor in signature.inputs.items()}
        types = {alias: numpy_type(tensor.dtype) for alias, tensor in signature.inputs.items()}
        if all(shapes[alias] is not None and types[alias] not in (None, np.object_) for alias in shapes):
            zeros = {a: np.zeros([max(size, 1) for size in shapes[a] or ()], types[a]) for a in shapes}
            self.run(SIGNATURE, zeros)
