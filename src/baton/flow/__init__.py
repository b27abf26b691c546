"""The ten steps of a handoff, in the order of the protocol; `lifecycle.STEPS` names them, a trace shows them.

| step | what happens | where |
|---|---|---|
| 1 TRIGGER | an agent, a limit or a person starts a handoff | `guards.triggers`, `offer` |
| 2 PREPARE | payload, state and history are frozen | `offer` |
| 3 VALIDATE | the guards judge it on the store's facts | `offer`, `guards` |
| 4 INITIATE | written as offered; audit `initiated` | `offer` |
| 5 ACKNOWLEDGE | capacity, breaker and budget are checked again | `claim`, `guards` |
| 6 ACCEPT / REJECT | one winner, one epoch; audit `accepted` or `rejected` | `claim` |
| 7 EXECUTE | the agent works; lease, deadline and budget run | `execute` |
| 8 RETURN | its answer becomes a step | `finish` |
| 9 COMPLETE | state, budget, audit and the next handoff in one commit | `finish` |
| 10 RELEASE | locks freed, open parts called off, state passed on, who waits told | `finish` |

A step never calls the next one. `worker` runs them one after the other, `recover` moves what got stuck, and
`crew` is what they share: the store, the agents of this process and their settings.
"""
