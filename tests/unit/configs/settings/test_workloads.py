from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

import ipulaunch.configs
from ipulaunch.configs.errors import SettingsError, UsageError
from ipulaunch.configs.runs.job import set_options
from ipulaunch.configs.settings.images import MODELS
from ipulaunch.configs.settings.schema import leaves, value_of
from ipulaunch.configs.settings.tree import Tree, assignment
from ipulaunch.configs.settings.workloads import SUMMARIES, WORKLOADS, Resolved, resolve, schema_of
from ipulaunch.topology.networks import network_of

SHIPPED = Path(ipulaunch.configs.__file__).parent


def mine(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def header(path: Path) -> List[str]:
    return list(itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines()))


YOURS = "data: {n_train: 3}\n"
YOURS_REHEARSED = "data: {n_train: 3}\nrehearsal:\n  data: {n_train: 4}\n"
ENVIRON = {"IPULAUNCH_DATA__N_TRAIN": "5"}
OVERRIDES = [assignment("data.n-train=6", "--set"), assignment("data.n_train=7", "--n-train")]


@pytest.mark.parametrize(
    ("rehearsal", "file", "environ", "overrides", "value", "origin"),
    [
        pytest.param(False, YOURS, {}, [], 3, "my.yaml:1", id="your file"),
        pytest.param(True, YOURS, {}, [], 3, "my.yaml:1", id="your file over the shipped rehearsal"),
        pytest.param(False, YOURS_REHEARSED, {}, [], 3, "my.yaml:1", id="your rehearsal outside of one"),
        pytest.param(True, YOURS_REHEARSED, {}, [], 4, "my.yaml:3", id="your rehearsal"),
        pytest.param(True, YOURS_REHEARSED, ENVIRON, [], 5, "IPULAUNCH_DATA__N_TRAIN", id="environment"),
        pytest.param(True, YOURS_REHEARSED, ENVIRON, OVERRIDES[:1], 6, "--set", id="override"),
        pytest.param(True, YOURS_REHEARSED, ENVIRON, OVERRIDES, 7, "--n-train", id="last override"),
    ],
)
def test_each_layer_wins_over_those_below(
    rehearsal: bool,
    file: str,
    environ: Dict[str, str],
    overrides: List[Tree],
    value: int,
    origin: str,
    tmp_path: Path,
) -> None:
    path = mine(tmp_path, file) if file else None
    found = resolve("cosmoflow", rehearsal=rehearsal, config_path=path, environ=environ, overrides=overrides)
    assert found.settings.data.n_train == value
    assert found.origins["data.n_train"].replace(f"{tmp_path}/", "") == origin
    assert found.rehearsal is rehearsal


@pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])
def test_shipped_value_points_at_its_line(rehearsal: bool) -> None:
    found = resolve("cosmoflow", rehearsal=rehearsal)
    name, line = found.origins["data.n_train"].split(":")
    lines = (SHIPPED / "workloads" / "cosmoflow.yaml").read_text(encoding="utf-8").splitlines()
    assert name == "configs/workloads/cosmoflow.yaml"
    assert lines[int(line) - 1].strip() == f"n_train: {found.settings.data.n_train}"
    assert (int(line) > lines.index("rehearsal:")) is rehearsal


def test_a_layer_changes_only_the_keys_it_gives(tmp_path: Path) -> None:
    before = resolve("cosmoflow", rehearsal=True)
    after = resolve("cosmoflow", rehearsal=True, config_path=mine(tmp_path, YOURS))
    data = dataclasses.replace(before.settings.data, n_train=3)
    assert after.settings == dataclasses.replace(before.settings, data=data)
    assert {key for key in before.origins if before.origins[key] != after.origins[key]} == {"data.n_train"}


def test_every_key_has_an_origin() -> None:
    found = resolve("cosmoflow", rehearsal=False)
    assert list(found.origins) == [leaf.key for leaf in leaves(schema_of("cosmoflow"))]


@pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("rehearsal:\n  data: {n_trian: 1}", ":2: data.n_trian is not a setting", id="unknown key"),
        pytest.param("rehearsal:\n  data: {n_train: x}", ":2: data.n_train is 'x', expected", id="wrong type"),
        pytest.param("\nrehearsal: 5", ":2: rehearsal is", id="not a section"),
        pytest.param("data: {side: 8}\nrehearsal:\n  data: 3", ":3: data is 3, expected a section", id="value"),
        pytest.param("rehearsal:\n  rehearsal:\n    data: {side: 8}", "rehearsal is not a setting", id="inside itself"),
    ],
)
def test_wrong_rehearsal_section_is_refused_in_and_outside_a_rehearsal(
    text: str, message: str, rehearsal: bool, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve("cosmoflow", rehearsal=rehearsal, config_path=mine(tmp_path, text))
    assert message in caught.value.message


@pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])
def test_wrong_value_is_refused_though_a_later_layer_hides_it(rehearsal: bool, tmp_path: Path) -> None:
    path = mine(tmp_path, "data: {n_train: many}\nrehearsal:\n  data: {n_train: 8}\n")
    with pytest.raises(SettingsError, match=r"my\.yaml:1: data\.n_train is 'many'"):
        resolve("cosmoflow", rehearsal=rehearsal, config_path=path, overrides=[assignment("data.n_train=6", "--set")])


def test_values_that_fit_only_together_may_come_from_two_layers(tmp_path: Path) -> None:
    path, override = mine(tmp_path, "data: {side: 8}"), assignment("model.n_conv_layers=3", "--set")
    model = resolve("cosmoflow", rehearsal=False, config_path=path, overrides=[override]).settings.model
    assert model.n_conv_layers == 3


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("key", ["data_dir", "dataset-path", "dataset_path"])
def test_keys_of_version_0_1_0_are_read(key: str, workload: str, tmp_path: Path) -> None:
    path = mine(tmp_path, f"data: {{{key}: a}}\nrehearsal:\n  data: {{{key}: b}}\n")
    found = resolve(workload, rehearsal=False, config_path=path)
    assert (found.settings.data.directory, found.origins["data.directory"]) == ("a", f"{path}:1")
    assert resolve(workload, rehearsal=True, config_path=path).settings.data.directory == "b"
    environ = {f"IPULAUNCH_DATA__{key.upper().replace('-', '_')}": "c"}
    found = resolve(workload, rehearsal=True, config_path=path, environ=environ)
    assert (found.settings.data.directory, found.origins["data.directory"]) == ("c", next(iter(environ)))
    overrides = [assignment(f"data.{key}=d", "--set")]
    assert resolve(workload, rehearsal=True, environ=environ, overrides=overrides).settings.data.directory == "d"


@pytest.mark.parametrize(
    ("second", "said"),
    [("directory", "directory"), ("dataset_path", "dataset_path, the former name of directory,")],
)
def test_a_key_under_two_of_its_names_is_refused(second: str, said: str, tmp_path: Path) -> None:
    path = mine(tmp_path, f"data:\n  data_dir: a\n  {second}: b\n")
    with pytest.raises(SettingsError, match=rf"my\.yaml:3: {said} is given twice"):
        resolve("cosmoflow", rehearsal=False, config_path=path)


@pytest.mark.parametrize(
    ("overrides", "numbers"),
    [
        pytest.param(["data.directory=d", "data.synthetic_data=cpu"], ["--data-dir", "--synthetic-data"], id="data"),
        pytest.param(["optimizer.momentum=0.9", "optimizer.name=adam"], ["momentum 0.9", "adam"], id="momentum"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(overrides: List[str], numbers: List[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve("cosmoflow", rehearsal=False, overrides=[assignment(text, "--set") for text in overrides])
    assert all(number in caught.value.message for number in numbers)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("environ", "overrides", "message", "hint"),
    [
        pytest.param(
            {"IPULAUNCH_DATA__NTRAIN": "1"},
            [],
            "IPULAUNCH_DATA__NTRAIN is not a setting",
            "did you mean IPULAUNCH_DATA__N_TRAIN?",
            id="unknown variable",
        ),
        pytest.param(
            {"IPULAUNCH_DATA_N_TRAIN": "64"},
            [],
            "IPULAUNCH_DATA_N_TRAIN is not a setting",
            "did you mean IPULAUNCH_DATA__N_TRAIN?",
            id="variable with one underscore",
        ),
        pytest.param(
            {"IPULAUNCH_FOO": "1"},
            [],
            "IPULAUNCH_FOO is not a setting",
            "variables are named after settings: IPULAUNCH_LAUNCH__IPUS_PER_REPLICA for launch.ipus_per_replica",
            id="variable like no other",
        ),
        pytest.param(
            {"IPULAUNCH_DATA__N_TRAIN": ""},
            [],
            "IPULAUNCH_DATA__N_TRAIN: data.n_train is '', expected a whole number of at least 1",
            "is the variable that it came from set?",
            id="empty variable",
        ),
        pytest.param(
            {},
            ["optimizer.nme=sgd"],
            "--set: optimizer.nme is not a setting",
            "did you mean optimizer.name?",
            id="unknown override",
        ),
        pytest.param(
            {},
            ["optimizer.name=sdg"],
            "--set: optimizer.name is 'sdg', expected one of adadelta, adam, lars, rmsprop, sgd",
            "did you mean sgd?",
            id="wrong choice",
        ),
        pytest.param(
            {},
            ["data..side=8"],
            "--set: data. is not a setting",
            None,
            id="hole in the key",
        ),
    ],
)
def test_wrong_setting_names_where_it_was_given(
    environ: Dict[str, str], overrides: List[str], message: str, hint: Optional[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        trees = [assignment(text, "--set") for text in overrides]
        resolve("cosmoflow", rehearsal=False, environ=environ, overrides=trees)
    assert caught.value.message == message
    assert hint is None or caught.value.hint == hint


def test_dashes_in_your_file_are_underscores(tmp_path: Path) -> None:
    path = mine(tmp_path, "training: {micro-batch-size: 2}")
    assert resolve("cosmoflow", rehearsal=False, config_path=path).settings.training.micro_batch_size == 2


def test_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no file"):
        resolve("cosmoflow", rehearsal=False, config_path=tmp_path / "none.yaml")


def test_unknown_workload_is_answered_with_the_near_miss() -> None:
    with pytest.raises(UsageError, match="there is no workload cosmoflo") as caught:
        resolve("cosmoflo", rehearsal=False)
    assert caught.value.hint == "did you mean cosmoflow?"


def test_every_workload_has_a_file_and_a_summary() -> None:
    files = {path.stem for path in (SHIPPED / "workloads").glob("*.yaml")}
    assert files == set(WORKLOADS) == set(SUMMARIES)


HEADED = [SHIPPED / "pods.yaml", *sorted((SHIPPED / "workloads").glob("*.yaml"))]


@pytest.mark.parametrize("path", HEADED, ids=lambda path: path.name)
def test_shipped_file_starts_with_a_header(path: Path) -> None:
    lines = header(path)
    assert len(lines) >= 3
    assert len(lines[0]) > 20


@pytest.mark.parametrize("workload", WORKLOADS)
def test_header_of_a_workload_gives_hardware_score_and_command(workload: str) -> None:
    found = dict(
        line[2:].split(maxsplit=1) for line in header(SHIPPED / "workloads" / f"{workload}.yaml") if len(line) > 1
    )
    assert {"Hardware", "Score", "Command"} <= set(found)
    assert found["Command"].startswith(f"ipulaunch {workload} ")


@pytest.mark.parametrize("rehearsal", [False, True], ids=["run", "rehearsal"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_shipped_settings_build(workload: str, rehearsal: bool) -> None:
    found = resolve(workload, rehearsal=rehearsal)
    assert isinstance(found, Resolved)
    assert isinstance(found.settings, schema_of(workload))


def test_cosmoflow_is_the_published_configuration() -> None:
    settings = resolve("cosmoflow", rehearsal=False).settings
    assert (settings.data.side, settings.data.channels, settings.training.micro_batch_size) == (64, 4, 1)
    assert (settings.optimizer.name, settings.optimizer.learning_rate) == ("adadelta", 0.5)
    assert (settings.training.num_epochs, settings.data.n_train, settings.data.normalise) == (30, 10000, "mean")
    assert (settings.data.n_valid, settings.training.validation) == (0, False)
    assert settings.launch.io_bound
    assert settings.ipus_per_replica == 1


@pytest.mark.parametrize(
    ("texts", "rehearsal", "expected"),
    [
        pytest.param([], False, (0, False), id="as published"),
        pytest.param([], True, (32, True), id="rehearsal"),
        pytest.param(["data.n_valid=7"], False, (7, True), id="samples"),
        pytest.param(["training.validation=true"], False, (1000, True), id="validation"),
        pytest.param(["training.training=false"], False, (1000, True), id="no training"),
        pytest.param(["data.n_valid=7", "training.validation=false"], False, (7, False), id="samples that wait"),
        pytest.param(["data.n_valid=0"], True, (0, False), id="rehearsal without"),
        pytest.param(["data.n_valid=0", "training.validation=0"], False, (0, False), id="no in another word"),
        pytest.param(["training.training=off"], False, (1000, True), id="no training in another word"),
    ],
)
def test_validation_follows_its_samples(texts: List[str], rehearsal: bool, expected: Tuple[int, bool]) -> None:
    found = resolve("cosmoflow", rehearsal=rehearsal, overrides=[assignment(text, "--set") for text in texts])
    assert (found.settings.data.n_valid, found.settings.training.validation) == expected
    assert found.given == {text.split("=")[0] for text in texts}  # so that a worker finds the same


def test_validation_without_samples_is_refused() -> None:
    texts = ("data.n_valid=0", "training.validation=true")
    with pytest.raises(SettingsError, match=r"data\.n_valid is 0, and validation is asked for"):
        resolve("cosmoflow", rehearsal=False, overrides=[assignment(text, "--set") for text in texts])


@pytest.mark.parametrize("workload", WORKLOADS)
def test_rehearsal_keeps_network_optimizer_and_replicas(workload: str) -> None:
    run, rehearsal = (resolve(workload, rehearsal=flag).settings for flag in (False, True))
    assert run != rehearsal
    rate = run.optimizer.learning_rate  # a few updates of small batches want another
    if hasattr(run.model, "norm_momentum"):  # and so do their batch statistics
        run = dataclasses.replace(
            run, model=dataclasses.replace(run.model, norm_momentum=rehearsal.model.norm_momentum)
        )
    assert run.model == rehearsal.model
    assert dataclasses.replace(rehearsal.optimizer, learning_rate=rate) == run.optimizer
    for name in ("ipus_per_replica", "num_replicas", "single"):
        assert getattr(rehearsal.launch, name) == getattr(run.launch, name)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_option_belongs_to_one_setting(workload: str) -> None:
    flags = Counter(leaf.about.flag for leaf in leaves(schema_of(workload)) if leaf.about.flag)
    assert flags
    assert set(flags.values()) == {1}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_setting_is_explained(workload: str) -> None:
    assert all(leaf.about.help for leaf in leaves(schema_of(workload)))


def chosen(workload: str, *texts: str, **more: Any) -> Resolved:
    return resolve(workload, rehearsal=True, overrides=[assignment(text, "--set") for text in texts], **more)


@pytest.mark.parametrize(
    ("workload", "choice", "key", "value"),
    [
        ("cifar10", "optimizer.name=adam", "optimizer.momentum", 0.0),
        ("imagenet", "optimizer.name=ADADELTA", "optimizer.momentum", 0.0),
        ("mnist", "model.name=cifar_resnet8", "model.dropout", None),
    ],
)
def test_a_shipped_value_gives_way_to_a_choice_that_has_no_use_for_it(
    workload: str, choice: str, key: str, value: object
) -> None:
    found = chosen(workload, choice)
    assert value_of(found.settings, key) == value
    (note,) = found.notes
    assert (
        note.startswith(f"{key} ")
        and f"of configs/workloads/{workload}.yaml:" in note
        and choice.partition("=")[2] in note
    )
    assert found.given == {choice.partition("=")[0]}
    network_of(found.settings)
    again = [assignment(text, "--set") for text in set_options(found)[1::2]]
    assert resolve(workload, rehearsal=True, overrides=again).settings == found.settings


def test_a_shipped_value_stays_with_a_choice_that_uses_it() -> None:
    found = chosen("cifar10", "optimizer.name=rmsprop", "model.name=cifar_cnn")
    assert (found.settings.optimizer.momentum, found.notes) == (0.9, ())


def test_what_was_asked_for_does_not_give_way(tmp_path: Path) -> None:
    refused: List[Dict[str, Any]] = [
        {"config": "resnet8_test_lars"},
        {"config_path": mine(tmp_path, "optimizer: {momentum: 0.9}")},
        {"environ": {"IPULAUNCH_OPTIMIZER__MOMENTUM": "0.9"}},
    ]
    for more in refused:
        with pytest.raises(SettingsError, match=r"momentum 0\.9 with adam"):
            chosen("cifar10", "optimizer.name=adam", **more)


@pytest.mark.parametrize("name", MODELS)
def test_dropout_gives_way_for_the_networks_that_drop_nothing(name: str) -> None:
    settings = chosen("mnist", f"model.name={name}").settings
    drops = any(layer.kind == "dropout" for layer in network_of(settings).layers)
    assert (settings.model.dropout is not None) is drops


@pytest.mark.parametrize("name", ["adadelta", "adam", "lars", "rmsprop", "sgd"])
def test_every_optimizer_can_be_chosen_by_its_name_alone(name: str) -> None:
    assert chosen("cifar10", f"optimizer.name={name}").settings.optimizer.name == name


def _with_api(api: str) -> Resolved:
    return resolve("cifar10", rehearsal=False, overrides=[assignment(f"estimator.api={api}", "--api")])


def test_what_is_shipped_for_an_api_comes_with_it_in_any_case_of_letters() -> None:
    assert _with_api("Estimator").settings == _with_api("estimator").settings
    assert _with_api("estimator").settings.model.name == "cifar_cnn"


@pytest.mark.parametrize("api", ["e" * 300, "../cifar10/estimator", "."], ids=["long", "path", "dot"])
def test_an_api_that_does_not_exist_is_refused_with_its_origin(api: str) -> None:
    with pytest.raises(SettingsError, match=r"--api: estimator.api is .*, expected one of keras, estimator"):
        _with_api(api)


@pytest.mark.parametrize(
    ("texts", "grouping"),
    [
        ([], (32, None)),
        (["model.norm_channels_per_group=16"], (32, 16)),
        (["model.norm_groups=8"], (8, None)),
        (["model.norm_groups=8", "model.norm_channels_per_group=null"], (8, None)),
    ],
    ids=["preset", "size", "number", "number and no size"],
)
def test_groups_of_a_preset_give_way_to_a_grouping_of_yours(texts: List[str], grouping: Any) -> None:
    overrides = [assignment(text, "--set") for text in texts]
    found = resolve("imagenet", rehearsal=False, config="resnet50_16ipus_8k_gn_pipeline", overrides=overrides)
    model = found.settings.model
    assert (model.norm_groups, model.norm_channels_per_group) == grouping


def test_groups_have_a_number_or_a_size() -> None:
    both = [assignment(f"model.norm_{text}", "--set") for text in ("groups=4", "channels_per_group=8")]
    with pytest.raises(SettingsError, match=r"model\.norm_groups is 4 and model\.norm_channels_per_group is 8"):
        resolve("imagenet", rehearsal=False, overrides=both)
