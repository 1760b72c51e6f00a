"""Finds the bentpipe command and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class BentpipeError(Exception):
    """bentpipe refused or failed.

    ``message`` is what it said, ``exit_code`` its exit status: 1 it failed, 2 bad input, 130 interrupted; None if it
    could not be run at all.
    """

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code

    def __reduce__(self):
        # Both arguments travel when another process raises it.
        return (BentpipeError, (self.message, self.exit_code))


def find() -> str:
    """The command: ``$BENTPIPE``, or on ``PATH``, or ``target/release/bentpipe`` here or in a folder above."""
    named = os.environ.get("BENTPIPE")
    if named:
        found = shutil.which(named)
        if found is None:
            raise BentpipeError(f"BENTPIPE is {named!r}, which is no program")
        return str(Path(found).absolute())
    found = shutil.which("bentpipe")
    if found:
        return str(Path(found).absolute())
    here = Path.cwd()
    for folder in (here, *here.parents):
        built = folder / "target" / "release" / "bentpipe"
        if os.access(built, os.X_OK):
            return str(built)
    raise BentpipeError("there is no bentpipe: build it (make build), put it on PATH, or name it in BENTPIPE")


def call(arguments: Sequence[str], command: str | None = None, echo: bool = False) -> tuple[int, str, str]:
    """Runs bentpipe; returns exit status, standard output and standard error.

    With ``echo`` standard error (the progress) is shown as it comes, and standard output is dropped. An interrupt is passed on, and waited for, so that
    what bentpipe has measured is written.
    """
    try:
        process = subprocess.Popen(
            [command or find(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if echo else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise BentpipeError(f"cannot run bentpipe: {error}") from error
    try:
        if not echo:
            output, errors = process.communicate()
            return process.returncode, output, errors
        lines = []
        for line in process.stderr:
            lines.append(line)
            sys.stderr.write(line)
            sys.stderr.flush()
        return process.wait(), "", "".join(lines)
    except BaseException:
        _end(process)
        raise


def message_of(errors: str) -> str:
    """What bentpipe said of an error, without its name before it."""
    lines = [line for line in errors.splitlines() if line.strip()]
    # "error: " is how its command line's parser begins.
    said = [line.split(": ", 1)[1] for line in lines if line.startswith(("bentpipe: ", "error: "))]
    return "; ".join(said or lines[-3:]) or "bentpipe said nothing"


def _end(process: subprocess.Popen) -> None:
    # Ctrl-C at a terminal reaches bentpipe too, and a second one would end it at once: give it time first.
    for stop in (None, process.terminate, process.kill):
        if stop is not None:
            stop()
        try:
            process.wait(timeout=3)
            return
        except subprocess.TimeoutExpired:
            continue
