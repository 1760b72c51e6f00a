"""Runs bentpipe, the satellite link emulator and simulator, and reads what it measures.

    import bentpipe

    record = bentpipe.run("scenarios/sweep.toml", set={"links.sat.noise.ratio": 1e-6})
    print(record.measurements)

    sweep = bentpipe.sweep(
        "scenarios/sweep.toml",
        vary={"links.sat.noise.ratio": "1e-9..1e-3 log 13"},
        seeds=10,
        out="runs/noise",
    )
    print(sweep.summary)
"""

from bentpipe.command import BentpipeError
from bentpipe.frames import Record, Sweep, load
from bentpipe.running import run, sweep

__all__ = ["BentpipeError", "Record", "Sweep", "load", "run", "sweep"]
