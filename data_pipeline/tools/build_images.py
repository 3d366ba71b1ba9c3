"""What a build of ImageNet reads: the images of a split by number, and the record that each of them becomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Callable, List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.tools.preparation import Preparation

PREPARATION = "image/preparation"


class NewRecord(NamedTuple):
    """A record to write, and whether its image is another one than before."""

    data: bytes
    is_new: bool


Maker = Callable[[int], NewRecord]


class Images(ABC):
    """The images of a split."""

    count: int
    edges: Optional[List[int]] = None  # the first image of each file and the end, if the new set is to keep its files
    classes: Optional[int] = None  # if they are known before the images are read
    defects: Tuple[DataError, ...] = ()  # of files whose images end early

    @abstractmethod
    def names(self) -> List[str]:
        """What tells whether a build that goes on has the same images."""

    @abstractmethod
    def maker(self, preparation: Preparation) -> Maker:
        """Makes the record of an image from its number, for one thread; a DataError names an image that is damaged."""
