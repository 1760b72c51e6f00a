"""The real command, in virtual time."""

import os
from pathlib import Path

import bentpipe
import polars as pl
import pytest
from bentpipe import command

SCENARIO = Path(__file__).parents[2] / "scenarios" / "sweep.toml"


@pytest.fixture
def real():
    try:
        command.find()
    except bentpipe.BentpipeError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def test_a_sweep_of_the_shipped_scenario(real, tmp_path):
    vary = {
        "links.sat.noise.ratio": "1e-9..1e-5 log 3",
        "hosts.*.tcp.receive_window": ["8KiB", "64KiB"],
        "hosts.*.tcp.sack": [True, False],
    }
    try:
        sweep = bentpipe.sweep(SCENARIO, vary=vary, seeds=3, out=tmp_path / "out", confidence=95)
    except bentpipe.BentpipeError as error:
        if "not built in yet" not in error.message:
            raise
        pytest.skip(error.message)
    goodput = sweep.measurements.filter(pl.col("measurement") == "goodput")
    assert goodput.height == 3 * 2 * 2 * 3
    assert goodput["links.sat.noise.ratio"].unique().sort().to_list() == [1e-9, 1e-7, 1e-5]
    assert goodput["hosts.*.tcp.receive_window"].unique().sort().to_list() == [8192.0, 65536.0]
    assert goodput["hosts.*.tcp.receive_window.text"].unique().sort().to_list() == ["64KiB", "8KiB"]
    assert goodput["hosts.*.tcp.sack"].unique().sort().to_list() == ["false", "true"]
    assert goodput["unit"].unique().to_list() == ["bit/s"]
    assert sweep.units["hosts.*.tcp.receive_window"] == "B"
    means = goodput.group_by("point", maintain_order=True).agg(pl.col("value").mean())["value"]
    summary = sweep.summary.filter(pl.col("measurement") == "goodput")
    assert summary["mean"].to_list() == pytest.approx(means.to_list())
    assert summary["n"].to_list() == [3] * 12
    record = bentpipe.run(SCENARIO, set={"links.sat.noise.ratio": 1e-9, "hosts.hub.tcp.sack": True})
    assert record.complete
    assert "goodput" in record.measurements["measurement"].to_list()
