"""What a command tells the user beside its result: notes, which explain, and warnings, which ask for a look."""

from __future__ import annotations

from typing import Iterable, List, NamedTuple

NOTE, WARNING = "note", "warning"


class Message(NamedTuple):
    """One sentence for the user."""

    kind: str  # NOTE or WARNING
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def note(text: str) -> Message:
    return Message(NOTE, text)


def warning(text: str) -> Message:
    return Message(WARNING, text)


def texts(messages: Iterable[Message], kind: str) -> List[str]:
    """The texts of one kind."""
    return [message.text for message in messages if message.kind == kind]


def in_order(messages: Iterable[Message]) -> List[Message]:
    """The messages as a user reads them: notes first, so that warnings stand next to what follows."""
    return sorted(messages, key=lambda message: message.kind == WARNING)
