"""The engine's state: job records, the inventory of devices, usage and history."""
