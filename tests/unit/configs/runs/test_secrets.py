from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ipulaunch.configs.runs import secrets

PARTS = ("SECRET", "token", "tokens", "tokenizer", "passwd", "PASSPHRASE", "api", "key", "access", "private", "cred")
MORE = ("creds", "credential", "cookie", "webhook", "auth", "author", "pwd", "pat", "path", "max", "num", "public")
PIECES = (*PARTS, *MORE, "sort", "ssh", "SOCK", "x", "9", "_", "-", "--", ".", "\n", "\u017f", "\u212a", "\u0130", "é")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("WANDB_API_KEY", True),
        ("db_pwd", True),
        ("GH-PAT", True),
        ("OLDPWD", False),
        ("LD_LIBRARY_PATH", False),
        ("MAX_TOKENS", False),
        ("AUTHOR", False),
        ("SSH_AUTH_SOCK", False),
        ("pa\u017f\u017fword", True),
    ],
)
def test_names_of_secrets(name: str, expected: bool) -> None:
    assert secrets.is_secret(name) is expected


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=12))
@example("A_PWD\n")
@settings(max_examples=1000, deadline=None)
def test_no_name_of_a_secret_is_passed_over_by_the_quick_look(name: str) -> None:
    """The regular expressions alone decide: what is looked at first only spares them most names."""
    ends_so = re.search(secrets._SECRET_AT_THE_END, name) and not re.search(secrets._COUNTS_AND_LOOKUPS, name)
    by_expressions = bool(re.search(secrets._SECRET, name) or ends_so)
    assert secrets.is_secret(name) == (by_expressions and name not in secrets._NO_SECRETS)
