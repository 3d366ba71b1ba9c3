from __future__ import annotations

from pathlib import Path

import pytest

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.launcher.serving.served import served_directory


def version(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "saved_model.pb").touch()
    return path


def test_a_directory_of_versions_is_served_under_its_own_name_or_the_one_that_is_given(tmp_path: Path) -> None:
    version(tmp_path / "net" / "1")
    assert served_directory(tmp_path / "net", None) == (tmp_path / "net", "net")
    assert served_directory(tmp_path / "net", "other").name == "other"


def test_what_is_no_directory_of_versions_leads_to_one(tmp_path: Path) -> None:
    version(tmp_path / "models" / "net" / "1")
    with pytest.raises(DataError) as above:
        served_directory(tmp_path / "models", None)
    assert above.value.hint == f"ipulaunch serve {tmp_path}/models/net"
    with pytest.raises(UsageError) as below:
        served_directory(tmp_path / "models" / "net" / "1", None)
    assert below.value.hint == f"ipulaunch serve {tmp_path}/models/net"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError) as empty:
        served_directory(tmp_path / "empty", None)
    assert "ipulaunch export" in str(empty.value.hint)
