"""Run the product's own code in simulated processes on virtual time, decided by one seed, and judge every step.

`simulate(seed)` plays one schedule: a few works from `workloads`, agents of the tempers in `actors`, processes around
one store, and the `faults` that hit them. `witness` looks at every step that is written, `history` at what everybody
was told, `judge` at what is left. `bugs` plants faults in the product itself, to see that they are found.
"""

from baton.testing.simulation.schedule import Outcome as Outcome
from baton.testing.simulation.schedule import simulate as simulate
