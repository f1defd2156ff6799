"""The strings of NCCL_ALGO and NCCL_PROTO, in the three ways in which NCCL has read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ._names import ALGORITHMS, COLLECTIVES, PROTOCOLS, NcclError, known, priced
from ._versions import numbers

__all__ = ["Setting", "parse_algo", "parse_proto"]

_Lists = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Setting:
    """What a string means to one NCCL version; `setting["broadcast"]` is what it allows there.

    Attributes:
        variable, text, version: what was read.
        lists: by collective the names allowed, in NCCL's order.
        touched: collectives whose list the text sets; the others keep NCCL's default.
        forced: from 2.31 on, collectives in whose list the text names something.
        ignored: up to 2.23, words that NCCL did not know and passed over without a warning.
    """

    variable: str
    text: str
    version: tuple[int, int, int]
    lists: _Lists
    touched: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()

    def __getitem__(self, collective: str) -> tuple[str, ...]:
        return self.lists[priced(collective)]


def parse_algo(text: str, version: str) -> Setting:
    """NCCL_ALGO as a version reads it.

    Up to 2.23: one list for all collectives, `^` in front excludes; words it does not know are
    passed over; where nothing is left, NCCL goes back to the ring. 2.24 to 2.30: lists by
    collective, `ring;allreduce:tree,nvls;broadcast:^nvls`, only the first without a name; an
    unknown word is an error, and nothing goes back to the ring. From 2.31: as before, but naming
    one collective in NCCL_ALGO takes the algorithms from those that NCCL_PROTO names alone.

    Source: parseList in src/graph/tuning.cc (2.20.3, 2.22.3, 2.24.3, 2.28.3) and in
    src/tuning/cost_model.cc (2.31); the user guide's env.html.

    Raises:
        NcclError: a version from 2.24 on would refuse the text.
    """
    return _parse("NCCL_ALGO", text, version, ALGORITHMS)


def parse_proto(text: str, version: str) -> Setting:
    """NCCL_PROTO as a version reads it, by the rules of `parse_algo`.

    Excluding one protocol switches LL128 on up to 2.30, also where NCCL would not use it.

    Raises:
        NcclError: a version from 2.24 on would refuse the text.
    """
    return _parse("NCCL_PROTO", text, version, PROTOCOLS)


def _parse(variable: str, text: str, version: str, names: tuple[str, ...]) -> Setting:
    at = numbers(version)
    if variable == "NCCL_ALGO" and at < (2, 23):
        names = tuple(name for name in names if name != "PAT")
    everything = Setting(variable, text, at, dict.fromkeys(COLLECTIVES, names))
    return _one_list(everything, names) if at < (2, 24) else _by_collective(everything, names)


def _one_list(setting: Setting, names: tuple[str, ...]) -> Setting:
    words = [word for word in setting.text.removeprefix("^").split(",") if word]
    folded = {word.lower() for word in words}
    listed = {name for name in names if name.lower() in folded}
    allowed = _kept(names, listed, setting.text.startswith("^"))
    lower = {name.lower() for name in names}
    return replace(
        setting,
        lists=dict.fromkeys(COLLECTIVES, allowed),
        touched=frozenset(COLLECTIVES),
        ignored=tuple(word for word in words if word.lower() not in lower),
    )


def _kept(names: tuple[str, ...], listed: set[str], inverted: bool) -> tuple[str, ...]:
    return tuple(name for name in names if (name in listed) != inverted)


def _by_collective(setting: Setting, names: tuple[str, ...]) -> Setting:
    lists, touched, forced = dict(setting.lists), set[str](), set[str]()
    for number, entry in enumerate(_entries(setting.text)):
        prefix, listing = _split(setting, entry, number)
        words = [word for word in listing.removeprefix("^").split(",") if word]
        listed = {_word(setting, word, names) for word in words}
        for collective in _prefixed(setting, prefix):
            lists[collective] = _kept(names, listed, listing.startswith("^"))
            touched.add(collective)
            forced |= {collective} if listed else set()
    return replace(setting, lists=lists, touched=frozenset(touched), forced=frozenset(forced))


def _entries(text: str) -> list[str]:
    """As strtok cuts at semicolons: empty ones are skipped, but one in front costs the first its
    right to have no name.
    """
    entries = [entry for entry in text.split(";") if entry]
    return ["", *entries] if text.startswith(";") and entries else entries


def _split(setting: Setting, entry: str, number: int) -> tuple[str, str]:
    parts = [part for part in entry.split(":") if part]
    if len(parts) > 1:
        return parts[0], parts[1]
    if number:
        raise _refused(
            setting,
            "after the first, every list must have a collective in front",
            entry,
            f"allreduce:{entry}",
        )
    return "", parts[0] if parts else ""


def _prefixed(setting: Setting, prefix: str) -> tuple[str, ...]:
    if not prefix:
        return tuple(COLLECTIVES)
    spelled = _known(setting, "a collective's name", prefix, tuple(COLLECTIVES.values()))
    return tuple(name for name, theirs in COLLECTIVES.items() if theirs == spelled)


def _word(setting: Setting, word: str, names: tuple[str, ...]) -> str:
    what = "an algorithm" if setting.variable == "NCCL_ALGO" else "a protocol"
    return _known(setting, what, word, names)


def _known(setting: Setting, what: str, got: str, names: tuple[str, ...]) -> str:
    return known(f"in {setting.variable}={setting.text!r} {what}", got, names)


def _refused(setting: Setting, rule: str, got: str, instead: str) -> NcclError:
    return NcclError(
        f"in {setting.variable}={setting.text!r} {rule}, got {got!r}; try {instead!r} there"
    )
