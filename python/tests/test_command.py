"""The real command, in virtual time."""

from pathlib import Path

import bentpipe
import polars as pl
import pytest

SCENARIO = Path(__file__).parents[2] / "scenarios" / "sweep.toml"


def test_a_sweep_of_the_shipped_scenario(real, tmp_path):
    vary = {
        "links.sat.noise.ratio": "1e-9..1e-5 log 3",
        "hosts.*.tcp.receive_window": ["8KiB", "64KiB"],
        "hosts.*.tcp.sack": [True, False],
    }
    sweep = bentpipe.sweep(SCENARIO, vary=vary, seeds=3, out=tmp_path / "out", confidence=95)
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
    for key in ("point", "links.sat.noise.ratio", "links.sat.noise.ratio.text", "hosts.*.tcp.sack"):
        assert sweep.summary[key].dtype == sweep.measurements[key].dtype, key
    assert summary["links.sat.noise.ratio.text"][0] == "1e-9"
    record = bentpipe.run(SCENARIO, set={"links.sat.noise.ratio": 1e-9, "hosts.hub.tcp.sack": True})
    assert record.complete
    assert "goodput" in record.measurements["measurement"].to_list()


def test_noise_that_nothing_passes(real, tmp_path):
    """As in docs/how-to/sweep.md, with fewer seeds."""
    sweep = bentpipe.sweep(
        SCENARIO,
        vary={"links.sat.noise.ratio": "1e-9..1e-3 log 13", "hosts.*.tcp.receive_window": ["8KiB", "64KiB", "1MiB"]},
        seeds=2,
        out=tmp_path / "noise",
    )
    rows = sweep.measurements.filter(pl.col("links.sat.noise.ratio") == 1e-3)
    assert rows["status"].unique().to_list() == ["failed"]
    again = bentpipe.load(tmp_path / "noise")
    assert again.measurements.equals(sweep.measurements)
    assert again.summary.equals(sweep.summary)


def test_a_stopping_rule(real, tmp_path):
    sweep = bentpipe.sweep(
        SCENARIO, vary={"links.sat.noise.ratio": [0, 1e-6]}, until={"goodput": "20%"}, seeds_max=40, out=tmp_path / "until"
    )
    runs = sweep.summary.filter(pl.col("measurement") == "goodput")["n"].to_list()
    assert runs[0] == 5
    assert 5 < runs[1] <= 40


def test_what_it_refuses(real, tmp_path):
    with pytest.raises(bentpipe.BentpipeError, match="no link") as caught:
        bentpipe.run(SCENARIO, set={"links.moon.rate": "1 Mbit/s"})
    assert caught.value.exit_code == 2
