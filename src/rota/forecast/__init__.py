"""Forecasts: when jobs start and end, as distributions over many forward runs of the present state."""
