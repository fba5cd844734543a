"""Queue, Topology and SchedulingPolicy objects: their types, their part of the settings, their status."""
