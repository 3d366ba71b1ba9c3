"""Sums over all instances, on the host."""

from __future__ import annotations

from typing import Any, List, Protocol

import numpy as np

from ipulaunch.configs.errors import NotReadyError


class Collective(Protocol):
    """What all instances do together, in the same order."""

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The element-wise sum over all instances, the same on each."""

    def rows(self, values: np.ndarray) -> np.ndarray:
        """What each instance gives, one row each; all give as many values."""

    def first(self, text: str) -> str:
        """The text that instance 0 gives, on all."""


class Alone:
    """The collective of a single instance."""

    def sum(self, values: np.ndarray) -> np.ndarray:
        return values

    def rows(self, values: np.ndarray) -> np.ndarray:
        return values[np.newaxis]

    def first(self, text: str) -> str:
        return text


class OverMpi:
    """Instances joined by MPI."""

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The element-wise sum over all instances, the same on each.

        A power of two of instances sums in pairs, then pairs of pairs: brackets that one instance with all the
        replicas uses as well, so the number of instances does not show in the result, not even in the last bit.
        """
        rank, size = self.communicator.Get_rank(), self.communicator.Get_size()
        total = np.ascontiguousarray(values)
        other = np.empty_like(total)
        if size & (size - 1):
            self.communicator.Allreduce(total, other)
            return other
        distance = 1
        while distance < size:
            partner = rank ^ distance
            self.communicator.Sendrecv(total, partner, recvbuf=other, source=partner)
            total = total + other
            distance *= 2
        return total

    def rows(self, values: np.ndarray) -> np.ndarray:
        """What each instance gives, one row each; all give as many values."""
        found = np.empty((self.communicator.Get_size(), *values.shape), values.dtype)
        self.communicator.Allgather(np.ascontiguousarray(values), found)
        return found

    def first(self, text: str) -> str:
        """The text that instance 0 gives, on all."""
        data = text.encode()
        size = self.sum(np.array([len(data) if self.communicator.Get_rank() == 0 else 0]))[0]
        buffer = bytearray(data if self.communicator.Get_rank() == 0 else int(size))
        self.communicator.Bcast(buffer, root=0)
        return buffer.decode()


def texts_of(collective: Collective, text: str) -> List[str]:
    """The texts that all instances give, on all."""
    data = np.frombuffer(text.encode(), np.uint8)
    lengths = collective.rows(np.array([len(data)]))[:, 0]
    rows = collective.rows(np.pad(data, (0, lengths.max() - len(data))))
    return [row[:length].tobytes().decode() for row, length in zip(rows, lengths)]


def join(index: int, instances: int) -> Collective:
    """The collective of one of so many instances, over MPI."""
    if instances == 1:
        return Alone()
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise NotReadyError(
            f"{instances} instances need mpi4py and Open MPI: {error}", hint="pip install 'ipulaunch[cpu]'"
        ) from error
    communicator = MPI.COMM_WORLD
    found = (communicator.Get_rank(), communicator.Get_size())
    if found != (index, instances):
        raise NotReadyError(
            f"MPI says process {found[0]} of {found[1]}, POPDIST_* say instance {index} of {instances}",
            hint="start the line that ipulaunch printed as it is; mpi4py and mpirun must be of one Open MPI",
        )
    return OverMpi(communicator)
