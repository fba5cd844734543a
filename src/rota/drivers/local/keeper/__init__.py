"""Runs one task and outlives the server: starts it exactly once, keeps its output, records how it ended.

A program of its own, started as `python -I -S -c PROGRAM FOLDER`; it imports next to nothing, so that it is up in
milliseconds and small. Two processes share the work, so that the death of one never loses an exit status: the
*supervisor* keeps the output, obeys orders and enforces limits; the *recorder*, its child and the task's parent, only
waits for the task and writes its exit status down. If the supervisor dies, the recorder ends the task.

Files in FOLDER, each written whole and then renamed: `task.json` (what to run), `claim` (who runs it: made once),
`state.json` (how far it is), `exit.json` (the recorder's word), `stop.json` and `rest.json` (orders),
`output-OFFSET.log`.
"""
