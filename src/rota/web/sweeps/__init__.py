"""The pages of sweeps: the list, one sweep, and the charts of its trials."""
