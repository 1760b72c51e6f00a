"""A sweep over a local Ray cluster of two workers."""

import json
import os
from pathlib import Path

import bentpipe
import pytest

if os.environ.get("CI"):
    import ray
else:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'bentpipe[ray]'")


@pytest.fixture
def cluster(monkeypatch):
    # A token of its own, so that Ray writes none to the home folder.
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False)
    yield
    ray.shutdown()


def test_sweep_on_ray(stand_in, scenario, tmp_path, cluster):
    vary = {"links.sat.rate": ["1 Mbit/s", "2 Mbit/s", "3 Mbit/s"]}
    out = tmp_path / "out"
    sweep = bentpipe.sweep(scenario, vary=vary, seeds=5, on="ray", out=out)
    assert sweep.measurements.height == 15
    assert sorted(sweep.measurements["seed"].unique()) == [1, 2, 3, 4, 5]
    words = [json.loads(line) for line in stand_in.read_text().splitlines()]
    shards = [one[one.index("--shard") + 1] for one in words if "--shard" in one]
    assert sorted(shards) == [f"{part}/8" for part in range(1, 9)]
    assert words[-1].count("--merge") == 8

    # A part that was lost is done again, the others are not.
    (out / "parts" / "3-of-8" / "done").unlink()
    stand_in.unlink()
    again = bentpipe.sweep(scenario, vary=vary, seeds=5, on="ray", out=out)
    assert again.measurements.equals(sweep.measurements)
    words = [json.loads(line) for line in stand_in.read_text().splitlines()]
    assert [one[one.index("--shard") + 1] for one in words if "--shard" in one] == ["3/8"]

    with pytest.raises(bentpipe.BentpipeError, match="no link") as caught:
        bentpipe.sweep(scenario, vary={"links.moon.rate": ["1 Mbit/s"]}, on="ray", out=tmp_path / "bad")
    assert caught.value.exit_code == 2


def test_the_real_command_on_ray(real, tmp_path, cluster):
    scenario = Path(__file__).parents[2] / "scenarios" / "sweep.toml"
    vary = {"links.sat.noise.ratio": "1e-9..1e-5 log 3"}
    spread = bentpipe.sweep(scenario, vary=vary, seeds=4, on="ray", out=tmp_path / "ray")
    local = bentpipe.sweep(scenario, vary=vary, seeds=4, out=tmp_path / "local")
    assert spread.measurements.equals(local.measurements)
    assert spread.summary.equals(local.summary)
    assert spread.summary.filter(spread.summary["measurement"] == "goodput")["n"].to_list() == [4, 4, 4]
