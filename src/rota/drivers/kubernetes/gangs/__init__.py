"""Gangs of pods: assembly, life cycle, binding, reporting."""
