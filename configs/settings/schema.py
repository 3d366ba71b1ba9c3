"""How a dataclass describes settings: `setting()` declares a value, `build()` checks a tree against it."""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Dict,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Tuple,
    Type,
    TypeVar,
)

from ipulaunch.configs.errors import SettingsError, near_miss, nearest
from ipulaunch.configs.settings.kinds import Kind, kind_called
from ipulaunch.configs.settings.tree import Given, Tree, first_origin, variable

if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform(**options):
        """Nothing: type checkers alone read it."""
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Settings:
    """A group of settings: its subclasses are frozen dataclasses that share the methods below.

    `dataclass` alone would write and compile methods for each group, at every start of a command.
    """

    __dataclass_fields__: ClassVar[Dict[str, Any]]

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self.__dataclass_fields__
        given = dict(zip(fields, values))
        if len(values) > len(fields) or given.keys() & named.keys() or not named.keys() <= fields.keys():
            raise TypeError(f"{type(self).__name__}() takes each of {', '.join(fields)} once, and nothing else")
        given.update(named)
        for name, field in fields.items():
            if name in given:
                value = given[name]
            elif field.default is not dataclasses.MISSING:
                value = field.default
            else:
                value = field.default_factory()
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check values that depend on each other."""

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _values(self) -> Tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in zip(self.__dataclass_fields__, self._values()))
        return f"{type(self).__qualname__}({values})"


S = TypeVar("S", bound=Settings)
_MOST = 10**12  # the largest count, unless a setting has its own limit: plans look for divisors of such numbers


class About(NamedTuple):
    """What setting() declares of a value."""

    help: str
    flag: str  # empty for a setting without an option of its own
    also: Tuple[str, ...]  # further names of the option
    choices: Tuple[str, ...]
    at_least: Optional[float]
    at_most: Optional[float]
    below: Optional[float]
    above: Optional[float]
    ipu_only: bool
    is_path: bool
    spellings: Mapping[object, object]


def setting(
    default: Any,
    help: str,
    *,
    flag: str = "",
    choices: Tuple[str, ...] = (),
    at_least: Optional[float] = None,
    at_most: Optional[float] = None,
    below: Optional[float] = None,
    above: Optional[float] = None,
    ipu_only: bool = False,
    is_path: bool = False,
    also: Tuple[str, ...] = (),
    spellings: Optional[Mapping[object, object]] = None,
) -> Any:
    """A value of a settings dataclass: its default, what it means, its limits and its own option, if it has one.

    An `ipu_only` setting has no meaning on a CPU: a rehearsal records it and says so. The published applications have
    other names for some options and values: `also` lists further names of the option, `spellings` maps values to ours.
    """
    about = About(help, flag, also, choices, at_least, at_most, below, above, ipu_only, is_path, spellings or {})
    return dataclasses.field(default=default, metadata={"about": about})


def section(cls: Type[S]) -> S:
    """A nested group of settings."""
    field: S = dataclasses.field(default_factory=cls, metadata={"section": cls})
    return field


class Leaf(NamedTuple):
    """One setting of a schema: its dotted key, its kind and its declaration."""

    key: str
    kind: Kind
    default: object
    about: About


def leaves(cls: type) -> Tuple[Leaf, ...]:
    """Every setting of a schema, in the order it is written down."""
    return _leaves(cls)


@functools.lru_cache(maxsize=None)  # a command asks for those of its workload again and again
def _leaves(cls: type, prefix: str = "") -> Tuple[Leaf, ...]:
    found: List[Leaf] = []
    for field in dataclasses.fields(cls):
        key = prefix + field.name
        if "section" in field.metadata:
            found += _leaves(field.metadata["section"], key + ".")
        else:
            found.append(Leaf(key, _kinds(cls)[field.name], field.default, field.metadata["about"]))
    return tuple(found)


@functools.lru_cache(maxsize=None)
def _kinds(cls: type) -> Dict[str, Kind]:
    """The kind of each setting of a dataclass."""
    values = [field for field in dataclasses.fields(cls) if "section" not in field.metadata]
    return {field.name: kind_called(str(field.type)) for field in values}


def flag_of(cls: type, name: str) -> str:
    """The option of a setting."""
    (about,) = (leaf.about for leaf in leaves(cls) if leaf.key == name)
    return about.flag


def value_of(settings: object, key: str) -> Any:
    """The value of a setting under its dotted key."""
    return functools.reduce(getattr, key.split("."), settings)


def with_value(settings: S, key: str, value: object) -> S:
    """The settings with another value under a dotted key."""
    first, _, rest = key.partition(".")
    return dataclasses.replace(
        settings, **{first: with_value(getattr(settings, first), rest, value) if rest else value}
    )


def plain(settings: Settings) -> Dict[str, Any]:
    """The settings as values that YAML has; build() gives back equal settings."""
    return dataclasses.asdict(settings, dict_factory=lambda items: {key: plain_value(value) for key, value in items})


def plain_value(value: object) -> object:
    """A setting's value as YAML has it."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Fraction) else value


def build(cls: Type[S], tree: Tree, origins: Dict[str, str]) -> S:
    """The settings a tree holds; unknown keys and wrong values are refused. Fills `origins` key by key."""
    return _made(cls, _values(cls, tree, origins, "", cls))


def check(cls: type, tree: Tree) -> None:
    """Refuse unknown keys and wrong values of one layer. Only build() sees whether values fit together."""
    _values(cls, tree, {}, "", cls)


def _made(cls: Type[S], values: Dict[str, Any]) -> S:
    for field in dataclasses.fields(cls):
        if "section" in field.metadata:
            values[field.name] = _made(field.metadata["section"], values[field.name])
    return cls(**values)


def _values(cls: type, tree: Tree, origins: Dict[str, str], prefix: str, root: type) -> Dict[str, Any]:
    fields, kinds = {field.name: field for field in dataclasses.fields(cls)}, _kinds(cls)
    for key, value in tree.items():
        if key not in fields:
            raise _unknown(prefix + key, first_origin(value), [prefix + name for name in fields], root)
    values: Dict[str, Any] = {}
    for name, field in fields.items():
        key, given = prefix + name, tree.get(name)
        if "section" in field.metadata:
            if isinstance(given, Given):
                inside = ", ".join(f.name for f in dataclasses.fields(field.metadata["section"]))
                message = f"{given.origin}: {key} is {given.value!r}, expected a section with {inside}"
                raise SettingsError(message)
            values[name] = _values(field.metadata["section"], given or {}, origins, key + ".", root)
        elif given is None:
            origins[key] = "default"
        elif isinstance(given, dict):
            message = f"{first_origin(given)}: {key} is one value, not a section"
            raise SettingsError(message, hint=f"expected {_expected(kinds[name], field.metadata['about'])}")
        else:
            values[name] = _checked(key, kinds[name], given, field.metadata["about"])
            origins[key] = given.origin
    return values


def _unknown(key: str, origin: str, beside: List[str], root: type) -> SettingsError:
    """The error for an unknown key, in the words of the place that it came from."""
    known = [leaf.key for leaf in leaves(root)]
    if origin == variable(key):
        prefix = variable("")  # which all have in common, and would make everything near
        meant = nearest(origin[len(prefix) :], (variable(each)[len(prefix) :] for each in known))
        example = f"variables are named after settings: {variable(known[0])} for {known[0]}"
        return SettingsError(f"{origin} is not a setting", hint=meant.replace("mean ", f"mean {prefix}") or example)
    every = {*beside, *known}
    hint = nearest(key, every) or near_miss(key, beside if "." in key else every)
    return SettingsError(f"{origin}: {key} is not a setting", hint=hint)


def _checked(key: str, kind: Kind, given: Given, about: About) -> object:
    try:
        chosen = _chosen(_meant(given.value, about.spellings), about.choices)
        if kind.item is str and isinstance(chosen, (bool, int, float)) and given.text is not None:
            chosen = given.text  # 2024, 0123 and no are names of directories as well
        value = kind.read(chosen)
        if value is None or _within(value, about):
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    if kind.item is int and _is_beyond(given.value, about):
        about = about._replace(at_most=_MOST)
    message = f"{given.origin}: {key} is {given.value!r}, expected {_expected(kind, about)}"
    if isinstance(given.value, str) and not given.value.strip():
        raise SettingsError(message, hint="is the variable that it came from set?")
    another = f"give another value, or none for what is shipped; it means: {about.help}"
    raise SettingsError(message, hint=nearest(str(given.value), about.choices) or another)


def _meant(value: object, spellings: Mapping[object, object]) -> object:
    """The value that a published spelling stands for; any other value stays as it is."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else value
    return next((meant for written, meant in spellings.items() if word == written), value)


def _chosen(value: object, choices: Tuple[str, ...]) -> object:
    """The choice that is meant, in any case of letters; YAML 1.1 reads a bare ON or OFF as true or false."""
    if isinstance(value, bool) and "on" in choices:
        value = "on" if value else "off"
    return next((choice for choice in choices if choice.lower() == str(value).lower()), value)


def _within(value: Any, about: About) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if about.choices and item not in about.choices:
            return False
        if about.at_least is not None and item < about.at_least:
            return False
        if (about.at_most is not None and item > about.at_most) or _is_beyond(item, about):
            return False
        if about.below is not None and item >= about.below:
            return False
        if about.above is not None and item <= about.above:
            return False
    return True


def _is_beyond(value: object, about: About) -> bool:
    """Whether a whole number that has no upper limit of its own is larger than any that is meant."""
    has_limit = about.at_most is not None or about.below is not None
    return type(value) is int and value > _MOST and not has_limit


def _expected(kind: Kind, about: About) -> str:
    words = "one of " + ", ".join(about.choices) if about.choices else kind.words
    limits = {
        "of at least": about.at_least,
        "above": about.above,
        "at most": about.at_most,
        "below": about.below,
    }
    found = [f"{text} {limit:,}" for text, limit in limits.items() if limit is not None]
    return " ".join([words, " and ".join(found)]) if found else words


def whole_path(path: str) -> str:
    """The absolute path; a path that is absolute already stays as it is written."""
    return path if Path(path).is_absolute() else str(Path(path).absolute())


def with_whole_paths(settings: S) -> S:
    """The settings, with all of their paths absolute."""
    for key, path in relative_paths(settings).items():
        settings = with_value(settings, key, whole_path(path))
    return settings


def relative_paths(settings: object) -> Dict[str, str]:
    """The paths that depend on the current directory, by their keys."""
    paths = {leaf.key: value_of(settings, leaf.key) for leaf in leaves(type(settings)) if leaf.about.is_path}
    return {key: path for key, path in paths.items() if path is not None and not Path(path).is_absolute()}
