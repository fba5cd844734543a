"""The calculation: state and events in, decisions out. No clock, no I/O, no environment."""
