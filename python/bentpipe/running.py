"""Runs and sweeps."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from bentpipe.command import BentpipeError, call, message_of
from bentpipe.frames import Record, Sweep

Value = str | int | float | bool

_INVALID = 3


def run(
    scenario: str | Path,
    virtual: bool = True,
    set: Mapping[str, Value] | None = None,
    out: str | Path | None = None,
) -> Record:
    """Runs a scenario and returns its record: in virtual time, or (``virtual=False``) over real packets.

    ``set`` overrides keys of the scenario, such as ``{"links.sat.one_way_delay": "250 ms"}``. ``out`` keeps record.json
    and report.html there. A live run that was too late to be trusted is returned too: see ``Record.valid``.
    """
    arguments = ["run", str(scenario), "--json", *(["--virtual"] if virtual else []), *_overrides(set)]
    with tempfile.TemporaryDirectory(prefix="bentpipe-") as scratch:
        code, output, errors = call([*arguments, "--out", str(out if out is not None else scratch)])
    if code not in (0, _INVALID):
        raise BentpipeError(message_of(errors), code)
    try:
        return Record(json.loads(output))
    except ValueError as error:
        raise BentpipeError(f"bentpipe printed no record: {error}", code) from error


def sweep(
    scenario: str | Path,
    vary: Mapping[str, str | Iterable[Value]] | None = None,
    seeds: int | None = None,
    on: str = "local",
    out: str | Path | None = None,
    *,
    set: Mapping[str, Value] | None = None,
    until: Mapping[str, str] | None = None,
    seeds_min: int | None = None,
    seeds_max: int | None = None,
    confidence: float | None = None,
    jobs: int | None = None,
) -> Sweep:
    """Runs a scenario in virtual time over a grid, as ``bentpipe sweep`` does, and returns what the folder then holds.

    ``vary`` maps a key to a list of values or to a text such as ``"1e-9..1e-3 log 13"``; ``seeds`` is how many each point
    gets (10 if left out), or ``until={"goodput": "2%"}`` the half-width that ends it. ``out`` is the folder;
    ``runs/NAME-sweep`` if left out. The same call continues a sweep that was ended early.

    ``on="local"`` uses this machine's cores, at most ``jobs`` of them. ``on="ray"`` spreads the runs over a Ray cluster:
    the one that is connected, or a local one that is started.
    """
    if on not in ("local", "ray"):
        raise ValueError(f"on={on!r}: allowed: 'local' or 'ray'")
    folder = Path(out) if out is not None else Path("runs") / f"{Path(scenario).stem}-sweep"
    arguments = _overrides(set)
    for key, values in (vary or {}).items():
        arguments += ["--vary", f"{key}={_values(key, values)}"]
    for measurement, limit in (until or {}).items():
        arguments += ["--until", f"{measurement}={limit}"]
    numbers = {"--seeds": seeds, "--seeds-min": seeds_min, "--seeds-max": seeds_max, "--confidence": confidence}
    for option, number in numbers.items():
        if number is not None:
            arguments += [option, str(number)]
    merge: list[str] = []
    if on == "ray":
        from bentpipe import on_ray

        merge = [word for part in on_ray.parts(Path(scenario), arguments, folder) for word in ("--merge", str(part))]
    if jobs is not None:
        merge += ["--jobs", str(jobs)]
    code, _, errors = call(["sweep", str(scenario), *arguments, *merge, "--out", str(folder)], echo=True)
    if code != 0:
        raise BentpipeError(message_of(errors), code)
    return Sweep(folder)


def text_of(value: Value) -> str:
    """A value as ``--set`` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(f"{value!r} is no text, number or truth value")


def _overrides(settings: Mapping[str, Value] | None) -> list[str]:
    return [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={text_of(value)}")]


def _values(key: str, values: str | Iterable[Value]) -> str:
    if isinstance(values, str):
        return values
    texts = [text_of(value) for value in values]
    for text in texts:
        if "," in text and not text.startswith(("[", "{", '"')):
            raise ValueError(f"vary {key}: {text!r} holds a comma, which separates values")
    return ",".join(texts)
