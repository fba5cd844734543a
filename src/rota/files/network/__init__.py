"""The network file, and tables of measured collectives."""
