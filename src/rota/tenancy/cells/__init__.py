"""Cells: guarantees of topology, not only of counts, after HiveD (Zhao et al., OSDI 2020).

A tenant owns cells of given shapes and sees them as a private cluster of *virtual* cells; which *physical*
cells they are is decided when they are used, by buddy allocation. Jobs without a guarantee use what is idle.

| module | what it is |
| --- | --- |
| `tree` | the two trees of cells |
| `build` | from a file's guarantees to trees |
| `free` | free physical cells: splitting, merging, what may be given away safely |
| `accounts` | the claims on devices, the bindings of virtual to physical cells, bad hardware |
| `packing` | which cells of a view take a gang |
| `mapping` | where virtual cells come to lie |
| `schedule` | a request in, a plan out: devices, victims and downgraded gangs |
| `recovery` | running gangs, claimed again after a restart or under new guarantees |
| `shortage` | how much of its cells a job lacks |
| `allocator` | all of it as the engine's allocator |
"""
