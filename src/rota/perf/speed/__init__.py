"""The speed of a job on its placement: device type, spread, neighbours, sharing."""
