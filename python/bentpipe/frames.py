"""Records and sweeps as polars data frames."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import version_1
from bentpipe.command import BentpipeError

_RECORD_VERSION = 2
_SWEEP_VERSION = 2

_MEASUREMENTS = {
    "case": pl.String,
    "workload": pl.String,
    "copy": pl.Int64,
    "app": pl.String,
    "client": pl.String,
    "server": pl.String,
    "direction": pl.String,
    "repeat": pl.Int64,
    "status": pl.String,
    "measurement": pl.String,
    "unit": pl.String,
    "better": pl.String,
    "value": pl.Float64,
}
_SERIES = {
    "case": pl.String,
    "source": pl.String,
    "name": pl.String,
    "copy": pl.Int64,
    "repeat": pl.Int64,
    "series": pl.String,
    "unit": pl.String,
    "time": pl.Float64,
    "value": pl.Float64,
}
_PARTIES = {
    "case": pl.String,
    "workload": pl.String,
    "copy": pl.Int64,
    "repeat": pl.Int64,
    "role": pl.String,
    "site": pl.String,
}
_LINKS = {"case": pl.String, "link": pl.String, "kind": pl.String, "from": pl.String, "to": pl.String}


class Record:
    """One run. Times are seconds since the start of their case; quantities are in base units.

    ``data`` is the record as version 2 has it; of version 1, the names, flows and units of that.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        if data.get("format") != "bentpipe-record":
            raise BentpipeError(f'not a bentpipe record: "format" is {data.get("format")!r}')
        if data.get("version", 0) > _RECORD_VERSION:
            raise BentpipeError(f"record version {data['version']} is newer than this package reads")
        self.data = version_1.upgrade(data) if data.get("version") == 1 else data

    def __repr__(self) -> str:
        return f"<bentpipe record {self.title!r}, {len(self.cases)} case(s), seed {self.seed}>"

    @property
    def title(self) -> str:
        """The scenario's title."""
        return self.data["title"]

    @property
    def seed(self) -> int:
        """The seed of every random stream."""
        return self.data["seed"]

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The cases as they stand in the record."""
        return self.data["cases"]

    @property
    def complete(self) -> bool:
        """Every case ran to its end."""
        return self.data["complete"]

    @property
    def valid(self) -> bool:
        """No case broke a limit; ``cases[i]["validity"]["reasons"]`` says which."""
        return all(case["validity"]["valid"] for case in self.cases)

    @cached_property
    def measurements(self) -> pl.DataFrame:
        """One row a measurement: case, workload, copy, …, measurement, unit, better, value."""
        rows = [
            {
                **{key: workload.get(key) for key in ("copy", "app", "direction", "repeat", "status")},
                "client": _sites(workload, "client"),
                "server": _sites(workload, "server"),
                "case": case["name"],
                "workload": workload["name"],
                "measurement": one["quantity"],
                "unit": one["unit"],
                "better": one.get("better"),
                "value": one["value"],
            }
            for case in self.cases
            for workload in case["workloads"]
            for one in workload["measurements"]
        ]
        return _frame(rows, _MEASUREMENTS)

    @cached_property
    def parties(self) -> pl.DataFrame:
        """One row a site that takes part in a run of a workload: case, workload, copy, repeat, role, site."""
        rows = [
            {"case": case["name"], "workload": workload["name"], **workload, **party}
            for case in self.cases
            for workload in case["workloads"]
            for party in workload["parties"]
        ]
        return _frame(rows, _PARTIES)

    @cached_property
    def series(self) -> pl.DataFrame:
        """Numbers over time, of workloads, link directions and TCP flows (``source`` says which)."""
        rows = []
        for case in self.cases:

            def put(source: str, name: str, series: list[dict[str, Any]], **of: int | None) -> None:
                for one in series:
                    head = {"case": case["name"], "source": source, "name": name, **of}
                    head |= {"series": one["quantity"], "unit": one["unit"]}
                    rows.extend({**head, "time": time, "value": value} for time, value in one["points"])

            for workload in case["workloads"]:
                of = {key: workload.get(key) for key in ("copy", "repeat")}
                put("workload", workload["name"], workload.get("series", []), **of)
            for link in case["links"]:
                for one in link["directions"]:
                    put("link", f"{link['name']}: {one['from']} → {', '.join(one['to'])}", one.get("series", []))
            for flow in case.get("tcp_samples", []):
                put("tcp", f"{flow['host']}: {_text(flow['flow'])}", flow["series"])
        return _frame(rows, _SERIES)

    @cached_property
    def links(self) -> pl.DataFrame:
        """One row a direction of a link, with its counters."""
        rows = [
            {
                "case": case["name"],
                "link": link["name"],
                "kind": link["kind"],
                "from": direction["from"],
                "to": ", ".join(direction["to"]),
                **direction["counters"],
            }
            for case in self.cases
            for link in case["links"]
            for direction in link["directions"]
        ]
        counters = {key: pl.Int64 for row in rows for key in row if key not in _LINKS}
        return _frame(rows, _LINKS | counters)

    @cached_property
    def flows(self) -> pl.DataFrame:
        """One row a TCP connection and host, as it was seen on the wire."""
        rows = [
            {"case": case["name"], **flow, "flow": _text(flow["flow"])} | _ends(flow["flow"])
            for case in self.cases
            for flow in case.get("flows", [])
        ]
        return pl.from_dicts(rows, infer_schema_length=None) if rows else pl.DataFrame()


class Sweep:
    """A sweep's folder. Values are in base units; ``units`` has those of the varied keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = _read_json(folder / "sweep.json")
        if self.asked.get("format") != "bentpipe-sweep":
            raise BentpipeError(f"{folder} holds no sweep")
        if self.asked.get("version", 0) > _SWEEP_VERSION:
            raise BentpipeError(f"{folder}: the sweep is of a newer bentpipe than this package reads")
        if not (folder / "results.parquet").exists():
            raise BentpipeError(f"{folder}: the sweep has no results yet; the command that began it continues it")

    def __repr__(self) -> str:
        return f"<bentpipe sweep in {str(self.folder)!r}, vary {self.asked['vary']}>"

    @cached_property
    def measurements(self) -> pl.DataFrame:
        """One row a measurement: point, the varied keys, case, workload, repeat, seed, measurement, unit, value, …"""
        return pl.read_parquet(self.folder / "results.parquet", glob=False)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row a point, workload and measurement: n, mean, half_width, minimum, maximum, failed, errors."""
        numbers = ("mean", "half_width", "minimum", "maximum", "confidence")
        # A text such as 1e-6 or true stays one: what both files hold has the types of the other.
        types = dict(pl.read_parquet_schema(self.folder / "results.parquet"))
        return pl.read_csv(
            self.folder / "summary.csv", glob=False, schema_overrides=types | dict.fromkeys(numbers, pl.Float64)
        )

    @cached_property
    def units(self) -> dict[str, str]:
        """The base unit of each varied key that is a number."""
        metadata = pl.read_parquet_metadata(self.folder / "results.parquet")
        return json.loads(metadata.get("bentpipe.units", "{}"))


def load(path: str | Path) -> Record | Sweep:
    """Reads a record.json, the folder of a run, or the folder of a sweep."""
    path = Path(path)
    if path.is_dir():
        if (path / "sweep.json").exists():
            return Sweep(path)
        if not (path / "record.json").exists():
            raise BentpipeError(f"{path} holds neither a record.json nor a sweep.json")
        path = path / "record.json"
    try:
        return Record(_read_json(path))
    except BentpipeError as error:
        raise BentpipeError(error.message if str(path) in error.message else f"{path}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BentpipeError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BentpipeError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict):
        raise BentpipeError(f"{path} is damaged: not an object")
    return data


def _sites(workload: dict[str, Any], role: str) -> str | None:
    return ", ".join(party["site"] for party in workload["parties"] if party["role"] == role) or None


def _text(flow: dict[str, Any]) -> str:
    def end(end: dict[str, Any]) -> str:
        address = f"[{end['address']}]" if ":" in end["address"] else end["address"]
        return f"{address}:{end['port']}"

    return f"{end(flow['source'])} → {end(flow['destination'])}"


def _ends(flow: dict[str, Any]) -> dict[str, Any]:
    return {f"{end}_{key}": flow[end][key] for end in ("source", "destination") for key in ("address", "port")}


def _frame(rows: list[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{key: row.get(key) for key in schema} for row in rows], schema=schema)
