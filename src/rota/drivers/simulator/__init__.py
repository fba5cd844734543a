"""The simulated world: an event heap, a virtual clock, and what really becomes of each job."""
