"""The year of three sites in Vessim: the same series, the same thresholds and hold times.

Reads the series (one column per site, one row per 300 s) from the file that is its argument, and
prints the CPU seconds of the run itself; loading is left out on both sides.
"""

import sys
import time

import pandas as pd
import vessim as vs

STEP = 300
ACTIVATE_BELOW, ACTIVATE_FOR = 100.0, 300
RELEASE_FROM, RELEASE_FOR = 120.0, 600
TRAINING_W = 2024.0


class Threshold(vs.Controller):
    """Starts and stops each site's load by its carbon intensity, with hold times both ways."""

    def __init__(self, loads):
        self.loads = loads
        self.running = dict.fromkeys(loads, False)
        self.since = dict.fromkeys(loads, None)
        self.starts = 0

    def step(self, now, microgrid_states):
        for name, state in microgrid_states.items():
            carbon = state["grid_signals"]["carbon"]
            running = self.running[name]
            leaving = carbon >= RELEASE_FROM if running else carbon < ACTIVATE_BELOW
            if not leaving:
                self.since[name] = None
                continue
            since = self.since[name] = self.since[name] or now
            held = RELEASE_FOR if running else ACTIVATE_FOR
            if (now - since).total_seconds() >= held:
                self.running[name] = not running
                self.since[name] = None
                self.starts += not running
                self.loads[name].set_value(0.0 if running else TRAINING_W)


series = pd.read_csv(sys.argv[1], index_col=0)
environment = vs.Environment(sim_start="2026-01-01", step_size=STEP)
loads = {}
for name in series.columns:
    load = loads[name] = vs.StaticSignal(0.0)
    environment.add_microgrid(
        name=name,
        actors=[vs.Consumer(name="gpus", signal=load)],
        dispatchables=[vs.GridConnection()],
        grid_signals={"carbon": vs.Trace(series[name])},
    )
controller = environment.add_controller(Threshold(loads))
began = time.process_time()
environment.run(until=STEP * len(series))
took = time.process_time() - began
print(f"{controller.starts} starts", file=sys.stderr)
print(took)
