"""Runs one task and outlives the manager: starts it exactly once, keeps its output, records how it ended.

A program of its own, started as `python -I -S -c PROGRAM`; it reads FOLDER from its standard input, so that it can be
up before there is a task for it. It imports next to nothing, to be small and quick. Two processes share the work, so
that the death of one never loses an exit status: the *supervisor* keeps the output, obeys orders and enforces limits;
the *recorder*, its child and the task's parent, only waits for the task and writes its exit status down. If the
supervisor dies, the recorder ends the task.

Files in FOLDER, each written whole and then renamed: `task.json` (what to run), `claim` (its supervisor: made once),
`state.json` (how far it is), `exit.json` (the recorder's word), `stop.json` and `rest.json` (orders),
`output-OFFSET.log`, `gpus.json` and `energy.json` (what it uses of GPUs), `warning.json` (that it uses too much of
them), `idle-warning.json` and `idle.json` (that its terminal is idle, and that it is to be ended for that), `shared`
(there once others have a part of them), and `tell`, a pipe on which the task may say `saving`.
"""
