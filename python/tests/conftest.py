"""The real bentpipe command, and a stand-in: it answers as the command does, without simulating anything."""

import os
from pathlib import Path

import bentpipe
import pytest
from bentpipe import command

STAND_IN = Path(__file__).parent / "stand_in.py"

SCENARIO = """title = "test"

[links.sat]
kind = "acts-t1"
between = ["hub", "site"]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the stand-in in the command's place; returns the file in which it notes how it was called."""
    calls = tmp_path / "calls.jsonl"
    monkeypatch.setenv("BENTPIPE", str(STAND_IN))
    monkeypatch.setenv("STAND_IN_CALLS", str(calls))
    return calls


@pytest.fixture
def real() -> str:
    """The real command."""
    try:
        return command.find()
    except bentpipe.BentpipeError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
