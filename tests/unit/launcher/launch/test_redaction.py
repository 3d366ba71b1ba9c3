from __future__ import annotations

from typing import List

import pytest

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.secrets import is_secret
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.launch.redaction import redact, redacted, refuse_secret


def test_variables_of_a_command_are_redacted_too() -> None:
    command = Command(("prog", "--api-key", "k"), {"A": "x hunter2hunter2", "MY_TOKEN": "t", "B": "--flag y"})
    shown = redacted(command, ["hunter2hunter2"])
    assert shown == (("prog", "--api-key", "***"), {"A": "x ***", "MY_TOKEN": "***", "B": "--flag y"})


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN",
        "HF_TOKEN",
        "githubToken",
        "--wandb-api-key",
        "WANDB_API_KEY",
        "APIKEY",
        "PASSWORD",
        "PGPASSWD",
        "AWS_SECRET_ACCESS_KEY",
        "ACCESS_KEY_ID",
        "private-key",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "Authorization",
        "BASIC_AUTH",
        "SSH_PASSPHRASE",
        "DB_PWD",
        "WANDB_KEY",
        "--signing-key",
        "GITHUB_PAT",
        "API_TOKENS",
        "HFTOKENS",
        "ADMINTOKENS",
        "MY_CRED",
        "SESSION_COOKIE",
        "SLACK_WEBHOOK",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "OMP_NUM_THREADS",
        "data.n_train",
        "--key",
        "keyboard",
        "TOKENIZERS_PARALLELISM",
        "--tokenizer",
        "--max-tokens",
        "MAX_NEW_TOKENS",
        "NUM_TOKENS",
        "--n-tokens",
        "--tokens",
        "--author",
        "PWD",
        "OLDPWD",
        "--pat",
        "PATH_PATTERN",
        "SSH_PUBLIC_KEY",
        "--sort-key",
        "--distribute-ssh-key",
        "CACHE_KEY",
        "MONKEY",
        "KEY_WORDS",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param(["prog", "--lr", "0.1"], ["prog", "--lr", "0.1"], id="nothing-to-hide"),
        pytest.param(["-x", "HF_TOKEN=abc"], ["-x", "HF_TOKEN=***"], id="variable"),
        pytest.param(["--api-key=abc", "x"], ["--api-key=***", "x"], id="option-with-equals"),
        pytest.param(["--api-key", "abc", "x"], ["--api-key", "***", "x"], id="option-and-value"),
        pytest.param(["--password", "--lr", "1"], ["--password", "--lr", "1"], id="option-without-value"),
        pytest.param(["--password="], ["--password=***"], id="empty-value"),
        pytest.param(["--password", ""], ["--password", "***"], id="empty-word"),
        pytest.param(["--secret=a=b=c"], ["--secret=***"], id="equals-in-the-value"),
        pytest.param(["--set", "login.password=abc"], ["--set", "login.password=***"], id="setting"),
        pytest.param(["token"], ["token"], id="a-word"),
        pytest.param(["--token"], ["--token"], id="last-word"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_values_of_secrets_are_masked(words: List[str], shown: List[str]) -> None:
    assert redact(words) == shown


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("--mpi-local-args=-x SHOWN=1 -x HF_TOKEN=hunter2", id="mpi-args"),
        pytest.param("exec SHOWN --token hunter2 :", id="guarded"),
        pytest.param("exec SHOWN '--token=my hunter2' :", id="guarded-with-a-blank"),
        pytest.param("\n  -x SHOWN\n  -x HF_TOKEN=hunter2\n", id="several-lines"),
        pytest.param("-x SHOWN=1 -x \\\nHF_TOKEN=hunter2", id="backslash-at-the-end-of-a-line"),
        pytest.param("SHOWN' HF_TOKEN=hunter2", id="open-quote"),
    ],
)
def test_secrets_within_a_word_are_masked(word: str) -> None:
    (shown,) = redact([word])
    assert "hunter2" not in shown
    assert "SHOWN" in shown or word.count("'") == 1


def test_blanks_of_other_words_are_kept() -> None:
    words = ["exec  prog : 'a  b'", "--mpi-global-args=\n  --tag-output\n  --x", "it's"]
    assert redact(words) == words


def test_values_are_masked_wherever_they_stand() -> None:
    words = ["prog", "-p", "hunter2hunter2", "--url=x/hunter2hunter2/y", "other"]
    assert redact(words, ["hunter2hunter2"]) == ["prog", "-p", "***", "--url=x/***/y", "other"]


def test_passwords_in_addresses_are_masked() -> None:
    assert redact(["s3://me:hunter2@bucket/x", "s3://bucket/a:b@c"]) == ["s3://***@bucket/x", "s3://bucket/a:b@c"]


def test_a_script_shows_no_value_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2hunter2")
    refuse_secret("wandb login $WANDB_API_KEY", "--setup")
    with pytest.raises(UsageError) as caught:
        refuse_secret("wandb login hunter2hunter2", "--setup")
    assert caught.value.message == "--setup would show the value of WANDB_API_KEY, a secret of your environment"
    assert "--env WANDB_API_KEY" in caught.value.hint
    assert "hunter2" not in caught.value.hint
