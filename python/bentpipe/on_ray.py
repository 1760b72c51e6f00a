"""The runs of a sweep as Ray tasks.

Ray schedules, retries and moves data; each task is one ``bentpipe sweep --shard PART/PARTS --jobs 1`` in a folder of its
own, whose journal comes back to the caller.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from bentpipe.command import BentpipeError, call, find, message_of

# Parts for each core: enough that a slow part does not leave the others waiting for long.
_PARTS_PER_CORE = 4

_FILES = ("sweep.json", "journal.jsonl")
_DONE = "done"


def parts(scenario: Path, arguments: list[str], folder: Path) -> list[Path]:
    """Runs every part that ``folder`` does not hold yet; returns the parts' folders."""
    try:
        import ray
    except ImportError as error:
        raise BentpipeError("on='ray' needs Ray: pip install 'ray>=2.40'") from error

    try:
        text = scenario.read_text(encoding="utf-8")
    except OSError as error:
        raise BentpipeError(f"cannot read {scenario}: {error.strerror}", 2) from error
    # Mistakes are found here, once, before anything is started.
    code, _, errors = call(["sweep", str(scenario), *arguments, "--check"])
    if code != 0:
        raise BentpipeError(message_of(errors), code)

    if not ray.is_initialized():
        ray.init()
    cores = int(ray.cluster_resources().get("CPU", 1))
    count = _kept_count(folder) or max(1, cores * _PARTS_PER_CORE)
    places = [folder / "parts" / f"{part}-of-{count}" for part in range(1, count + 1)]
    task = ray.remote(num_cpus=1, max_retries=3)(_run_part)
    waiting = {
        task.remote(str(scenario.absolute()), text, arguments, f"{part}/{count}", find()): place
        for part, place in enumerate(places, start=1)
        if not (place / _DONE).exists()
    }
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1)
        for one in ready:
            place = waiting.pop(one)
            code, message, files = ray.get(one)
            if code not in (0, 1):
                raise BentpipeError(message, code)
            _keep(place, files, done=code == 0)
    return [place for place in places if (place / _FILES[0]).exists()]


def _run_part(
    scenario: str, text: str, arguments: list[str], shard: str, command: str
) -> tuple[int, str, dict[str, bytes]]:
    with tempfile.TemporaryDirectory(prefix="bentpipe-part-") as scratch:
        if not Path(scenario).exists():
            # Another machine: the scenario itself is all that it needs.
            scenario = str(Path(scratch) / Path(scenario).name)
            Path(scenario).write_text(text, encoding="utf-8")
        out = Path(scratch) / "part"
        command = command if os.access(command, os.X_OK) else find()
        options = ["--shard", shard, "--jobs", "1", "--out", str(out)]
        code, _, errors = call(["sweep", scenario, *arguments, *options], command)
        files = {name: (out / name).read_bytes() for name in _FILES if (out / name).exists()}
        return code, message_of(errors) if code else "", files


def _kept_count(folder: Path) -> int | None:
    """Of how many parts an earlier call made the sweep."""
    for place in sorted((folder / "parts").glob("*-of-*")):
        found = re.fullmatch(r"\d+-of-(\d+)", place.name)
        if found:
            return int(found[1])
    return None


def _keep(place: Path, files: dict[str, bytes], done: bool) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        new = place / f".{name}.new"
        new.write_bytes(content)
        new.replace(place / name)
    if done:
        (place / _DONE).touch()
