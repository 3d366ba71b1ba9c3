from __future__ import annotations

import pytest

from ipulaunch.configs.messages import note, warning
from ipulaunch.launcher.show.messages import messages_data, show_messages

MESSAGES = (warning("rounded"), note("as root"), warning("two hosts"))


def test_notes_stand_before_warnings_and_neither_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    show_messages(MESSAGES)
    assert tuple(capsys.readouterr()) == ("", "note: as root\nwarning: rounded\nwarning: two hosts\n")


def test_json_has_the_texts_of_each_kind() -> None:
    assert messages_data(MESSAGES) == {"notes": ["as root"], "warnings": ["rounded", "two hosts"]}
