"""Records of version 1 in the shape of version 2, as far as the data frames need it."""

from __future__ import annotations

import re
from typing import Any

from bentpipe.command import BentpipeError

_COPY = re.compile(r"(.*) \((\d+)\)")
_NAME = re.compile(r"""^\s*name\s*=\s*(["'])(.*?)\1\s*(?:#.*)?$""", re.MULTILINE)
_FLOW = re.compile(r"(.*):(\d+) → (.*):(\d+)")
_SHARES = ("loss", "ratio", "share", "utilisation")


def upgrade(old: dict[str, Any]) -> dict[str, Any]:
    """The record with copies, parties, flows and units as fields. `bentpipe report FILE --json` converts all of it."""
    # Among these, names that end like a copy's by themselves.
    literal = {name for _, name in _NAME.findall(old.get("scenario", ""))}
    new = {key: value for key, value in old.items() if value != "" or key not in ("created", "machine")}
    return new | {"version": 2, "cases": [_case(case, literal) for case in old["cases"]]}


def _case(old: dict[str, Any], literal: set[str]) -> dict[str, Any]:
    new = dict(old)
    new["workloads"] = [_workload(workload, literal) for workload in old["workloads"]]
    new["links"] = [
        {**link, "directions": [{**_series(one), "to": one["to"].split(", ")} for one in link["directions"]]}
        for link in old["links"]
    ]
    for key in ("tcp_samples", "flows"):
        if key in old:
            new[key] = [{**_series(one), "flow": _flow(one["flow"])} for one in old[key]]
    return new


def _workload(old: dict[str, Any], literal: set[str]) -> dict[str, Any]:
    new = _series({key: value for key, value in old.items() if key not in ("client", "server", "direction")})
    match = None if old["name"] in literal else _COPY.fullmatch(old["name"])
    if match:
        new |= {"name": match[1], "copy": int(match[2])}
    new["parties"] = [{"role": role, "site": old[role]} for role in ("client", "server") if old.get(role)]
    if old.get("direction"):
        new["direction"] = old["direction"]
    new["measurements"] = [_number(one) for one in old["measurements"]]
    return new


def _series(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "series": [_number(one) for one in old["series"]]} if "series" in old else dict(old)


def _number(old: dict[str, Any]) -> dict[str, Any]:
    share = old["unit"] == "1" and any(word in old["name"] for word in _SHARES)
    rest = {key: value for key, value in old.items() if key not in ("name", "unit")}
    return {"quantity": old["name"], "unit": "share" if share else old["unit"], **rest}


def _flow(text: str) -> dict[str, Any]:
    match = _FLOW.fullmatch(text)
    if not match:
        raise BentpipeError(f"{text!r} is no connection")
    ends = ((match[1], match[2]), (match[3], match[4]))
    source, destination = ({"address": address.strip("[]"), "port": int(port)} for address, port in ends)
    return {"source": source, "destination": destination}
