"""What a SavedModel says of itself, read without TensorFlow: its signatures and the batch that they are made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Tuple

from google.protobuf.message import DecodeError

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.exports import SAVED_MODEL
from ipulaunch.workers.server.messages import SavedModel
from ipulaunch.workers.server.tensors import shape_of

_TAG = "serve"


class Tensor(NamedTuple):
    """One input or output of a signature."""

    name: str  # in the graph
    dtype: int
    shape: Optional[Tuple[int, ...]]

    def fits(self, shape: Tuple[int, ...], skip: int = 0) -> bool:
        """Whether a value of this shape may be fed; `skip` leading sizes are somebody else's."""
        if self.shape is None:
            return True
        same = len(self.shape) == len(shape)
        return same and all(a in (-1, b) for a, b in zip(self.shape[skip:], shape[skip:]))


class Signature(NamedTuple):
    """A function of a SavedModel: tensors by their names for users."""

    inputs: Dict[str, Tensor]
    outputs: Dict[str, Tensor]
    definition: Any

    @property
    def batch(self) -> Optional[int]:
        """The batch that all inputs are made for; None where it is left open."""
        first = {tensor.shape[0] if tensor.shape else None for tensor in self.inputs.values()}
        size = first.pop() if len(first) == 1 else None
        return size if size and size > 0 else None


def signatures(directory: Path) -> Dict[str, Signature]:
    """The signatures of the SavedModel in a directory."""
    path = directory / SAVED_MODEL
    try:
        model = SavedModel.FromString(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise DataError(f"{path} is not a SavedModel: {error}") from error
    for graph in model.meta_graphs:
        if _TAG in graph.meta_info_def.tags:
            return {name: _signature(definition) for name, definition in graph.signature_def.items()}
    raise DataError(f"{path} has nothing to serve: none of its graphs has the tag {_TAG!r}")


def _signature(definition: Any) -> Signature:
    return Signature(_tensors(definition.inputs), _tensors(definition.outputs), definition)


def _tensors(infos: Any) -> Dict[str, Tensor]:
    return {
        alias: Tensor(infos[alias].name, infos[alias].dtype, shape_of(infos[alias].tensor_shape))
        for alias in sorted(infos)
    }
