"""Plans inside a job: which device runs which operator, in which stages, and how long a step then takes.

A problem is a graph of operators and a graph of devices. Planners turn a problem into a plan; the simulator judges
every plan by the same rules. All times are in milliseconds, as in published profiles.
"""
