"""Rota: one scheduling engine for deep-learning jobs, in a simulator, on one machine and on Kubernetes."""

__version__ = "0.1.0"
