#!/usr/bin/env python3
"""Answers as bentpipe does: `run` prints a record, `sweep` keeps a journal in a folder and writes the results."""

import argparse
import json
import os
import sys
from pathlib import Path


def refuse(message: str, code: int = 2) -> None:
    print(f"bentpipe: {message}", file=sys.stderr)
    sys.exit(code)


def record(seed: int) -> dict:
    counters = {"offered_packets": 3, "link_bytes": 4000, "bit_errors": 1}
    series = [{"quantity": "queue", "unit": "B", "points": [[0.0, 0.0], [0.5, 1500.0]]}]
    goodput = {"quantity": "goodput", "unit": "bit/s", "better": "higher", "value": 1e6 + seed}
    a, b = ({"address": f"10.0.0.{n}", "port": n} for n in (1, 2))
    case = {
        "name": "test",
        "seconds": 1.5,
        "validity": {"valid": True, "reasons": []},
        "settings": [],
        "workloads": [
            {
                "name": "transfer",
                "app": "bulk",
                "copy": 2,
                "parties": [{"role": "client", "site": "site"}, {"role": "server", "site": "hub"}],
                "direction": "download",
                "repeat": 1,
                "start": 0.0,
                "end": 1.5,
                "status": "done",
                "measurements": [goodput, {"quantity": "bytes", "unit": "B", "value": 1000}],
                "series": [{"quantity": "goodput", "unit": "bit/s", "points": [[1.0, 1e6]]}],
            }
        ],
        "links": [
            {
                "name": "sat",
                "kind": "acts-t1",
                "summary": "",
                "directions": [
                    {"from": "hub", "to": ["site"], "counters": counters, "series": series},
                    {"from": "site", "to": ["hub"], "counters": counters, "series": []},
                ],
            }
        ],
        "flows": [
            {"host": "hub", "flow": {"source": a, "destination": b}, "mss": None},
            {"host": "site", "flow": {"source": b, "destination": a}, "mss": 1460},
        ],
    }
    return {
        "format": "bentpipe-record",
        "version": 2,
        "bentpipe": "0.1.0",
        "mode": "virtual",
        "title": "test",
        "seed": seed,
        "complete": True,
        "cases": [case],
    }


def sweep(options: argparse.Namespace) -> None:
    values = [one for vary in options.vary for one in vary.split("=", 1)[1].split(",")]
    asked = {"format": "bentpipe-sweep", "version": 2, "vary": options.vary, "seeds": options.seeds}
    runs = [(point, run) for point in range(len(values)) for run in range(options.seeds)]
    if options.check:
        return
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    journal = out / "journal.jsonl"
    (out / "sweep.json").write_text(json.dumps(asked))
    done = {}
    for folder in [*options.merge, out]:
        path = Path(folder) / "journal.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        done |= {(line["point"], line["run"]): line for line in map(json.loads, lines)}
    if options.shard:
        part, parts = map(int, options.shard.split("/"))
        runs = [run for i, run in enumerate(runs) if i % parts == part - 1]
    missing = [run for run in runs if run not in done]
    print(f"{len(missing)} runs to do", file=sys.stderr)
    if options.merge and missing:
        refuse(f"the parts lack {missing}", 1)
    done |= {(point, run): {"point": point, "run": run, "seed": 1 + run} for point, run in missing}
    journal.write_text("".join(json.dumps(done[run]) + "\n" for run in runs))
    if options.shard:
        return
    import polars as pl

    rows = [{"point": p, "links.sat.rate.text": values[p], "seed": done[p, r]["seed"]} for p, r in runs]
    frame = pl.DataFrame(rows).with_columns(value=pl.lit(1.5), measurement=pl.lit("goodput"))
    frame.write_parquet(out / "results.parquet", metadata={"bentpipe.units": json.dumps({"links.sat.rate": "bit/s"})})
    lines = [f"{point},{text},test,99,1.5,\n" for point, text in enumerate(values)]
    (out / "summary.csv").write_text("point,links.sat.rate,case,confidence,mean,half_width\n" + "".join(lines))
    print("a table")


def main() -> None:
    with open(os.environ["STAND_IN_CALLS"], "a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run", "sweep"])
    parser.add_argument("scenario")
    for option in ("--set", "--vary", "--until", "--merge"):
        parser.add_argument(option, action="append", default=[])
    for option in ("--out", "--shard", "--jobs"):
        parser.add_argument(option)
    parser.add_argument("--seeds", type=int, default=10)
    for option in ("--virtual", "--json", "--check"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    if not Path(options.scenario).exists():
        refuse(f"cannot read {options.scenario}: No such file or directory (os error 2)")
    if any("moon" in text for text in (*options.set, *options.vary)):
        refuse('there is no link "moon"')
    if options.command == "sweep":
        sweep(options)
        return
    text = json.dumps(record(7))
    (Path(options.out) / "record.json").parent.mkdir(parents=True, exist_ok=True)
    (Path(options.out) / "record.json").write_text(text)
    print(text)
    sys.exit(3 if "seed=3" in options.set else 0)


main()
