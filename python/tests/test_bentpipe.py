import json
import os
from pathlib import Path

import bentpipe
import jsonschema
import pytest
from bentpipe import command


def calls(path: Path) -> list[list[str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_run_returns_the_record(scenario, stand_in):
    record = bentpipe.run(scenario, set={"links.sat.noise.ratio": 1e-6, "hosts.hub.tcp.sack": False})
    (words,) = calls(stand_in)
    assert words[:4] == ["run", str(scenario), "--json", "--virtual"]
    assert words[4:8] == ["--set", "links.sat.noise.ratio=1e-06", "--set", "hosts.hub.tcp.sack=false"]
    assert not Path(words[words.index("--out") + 1]).exists(), "nothing is left behind"
    assert (record.title, record.seed, record.complete, record.valid) == ("test", 7, True, True)
    rows = record.measurements.select("case", "workload", "measurement", "unit", "value").rows()
    assert rows == [
        ("test", "transfer", "goodput", "bit/s", 1_000_007.0),
        ("test", "transfer", "bytes", "B", 1000.0),
    ]
    assert record.series["source"].to_list() == ["workload", "link", "link"]
    assert record.series["name"].to_list()[-1] == "sat: hub → site"
    assert record.links.select("from", "to", "link_bytes").rows() == [("hub", "site", 4000), ("site", "hub", 4000)]
    assert record.flows["mss"].to_list() == [None, 1460]
    assert record.flows.select("flow", "destination_port").row(0) == ("10.0.0.1:1 → 10.0.0.2:2", 2)
    assert record.measurements.select("copy", "client", "server", "better").row(0) == (2, "site", "hub", "higher")
    assert record.parties.select("role", "site").rows() == [("client", "site"), ("server", "hub")]


def test_records_of_both_versions_fit_their_schemas_and_give_the_same_frames():
    lab = Path(__file__).parents[2] / "crates" / "bentpipe-lab"
    schemas = {version: json.loads((lab / "schema" / f"record-{version}.json").read_text()) for version in (1, 2)}
    files = sorted(path.name for path in (lab / "tests" / "records" / "v1").iterdir())
    assert len(files) >= 4
    for name in files:
        texts = {version: (lab / "tests" / "records" / f"v{version}" / name).read_text() for version in (1, 2)}
        for version, schema in schemas.items():
            validator = jsonschema.Draft202012Validator(schema)
            validator.validate(json.loads(texts[version]))
            assert not validator.is_valid({"format": "bentpipe-record", "version": version})
        old, new = (bentpipe.frames.Record(json.loads(text)) for text in texts.values())
        assert old.measurements.drop("better").equals(new.measurements.drop("better"))
        for frame in ("series", "links", "flows", "parties"):
            assert getattr(old, frame).equals(getattr(new, frame)), frame


def test_run_keeps_the_record_where_it_is_told(scenario, stand_in, tmp_path):
    bentpipe.run(scenario, virtual=False, out=tmp_path / "out")
    assert "--virtual" not in calls(stand_in)[0]
    for path in (tmp_path / "out", tmp_path / "out" / "record.json"):
        assert bentpipe.load(path).measurements.height == 2


def test_a_late_run_is_returned(scenario, stand_in):
    assert bentpipe.run(scenario, set={"seed": 3}).seed == 7


def test_errors_carry_message_and_exit_code(scenario, stand_in, tmp_path):
    with pytest.raises(bentpipe.BentpipeError) as caught:
        bentpipe.run(scenario, set={"links.moon.rate": "1 Mbit/s"})
    assert (caught.value.message, caught.value.exit_code) == ('there is no link "moon"', 2)
    with pytest.raises(bentpipe.BentpipeError, match="cannot read .*none.toml"):
        bentpipe.sweep(tmp_path / "none.toml", out=tmp_path / "out")
    with pytest.raises(TypeError, match="no text, number or truth value"):
        bentpipe.run(scenario, set={"links.sat.rate": ["x"]})


def test_the_command_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BENTPIPE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bentpipe.BentpipeError, match="there is no bentpipe"):
        command.find()
    built = tmp_path / "target" / "release" / "bentpipe"
    built.parent.mkdir(parents=True)
    built.touch(mode=0o755)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert command.find() == str(built)
    monkeypatch.setenv("PATH", os.pathsep.join([str(built.parent), str(tmp_path)]))
    assert command.find() == str(built)
    monkeypatch.setenv("BENTPIPE", "no-such-program")
    with pytest.raises(bentpipe.BentpipeError, match="no-such-program"):
        command.find()


def test_sweep_on_this_machine(scenario, stand_in, tmp_path, capsys):
    vary = {"links.sat.rate": ["1 Mbit/s", "2 Mbit/s"]}
    sweep = bentpipe.sweep(scenario, vary=vary, seeds=3, out=tmp_path / "out", jobs=2)
    (words,) = calls(stand_in)
    out = str(tmp_path / "out")
    expected = ["--vary", "links.sat.rate=1 Mbit/s,2 Mbit/s", "--seeds", "3", "--jobs", "2", "--out", out]
    assert words == ["sweep", str(scenario), *expected]
    assert sweep.measurements.height == 6
    assert sweep.units == {"links.sat.rate": "bit/s"}
    assert sweep.summary["mean"].to_list() == [1.5, 1.5]
    assert sweep.summary["half_width"].to_list() == [None, None]
    assert "6 runs to do" in capsys.readouterr().err
    assert bentpipe.load(tmp_path / "out").measurements.equals(sweep.measurements)


def test_sweep_says_what_is_wrong(scenario, stand_in, tmp_path):
    with pytest.raises(bentpipe.BentpipeError, match="no link") as caught:
        bentpipe.sweep(scenario, vary={"links.moon.rate": ["1 Mbit/s"]}, out=tmp_path / "out")
    assert caught.value.exit_code == 2
    with pytest.raises(ValueError, match="holds a comma"):
        bentpipe.sweep(scenario, vary={"links.sat.rate": ["1,000 bit/s"]})
    with pytest.raises(ValueError, match="'local' or 'ray'"):
        bentpipe.sweep(scenario, on="mars")


def test_load_says_what_is_wrong(tmp_path):
    with pytest.raises(bentpipe.BentpipeError, match="neither"):
        bentpipe.load(tmp_path)
    with pytest.raises(bentpipe.BentpipeError, match="cannot read"):
        bentpipe.load(tmp_path / "none.json")
    (tmp_path / "x.json").write_text('{"format": "other"}')
    with pytest.raises(bentpipe.BentpipeError, match="x.json: not a bentpipe record"):
        bentpipe.load(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(bentpipe.BentpipeError, match="x.json is damaged"):
        bentpipe.load(tmp_path / "x.json")
    (tmp_path / "sweep.json").write_text('{"format": "bentpipe-sweep", "version": 1}')
    with pytest.raises(bentpipe.BentpipeError, match="no results yet"):
        bentpipe.load(tmp_path)
