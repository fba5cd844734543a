"""Searches over the parameters of a training: the file, samplers, rules of early stopping, and the search itself.

Everything here is a calculation: trials and their reports go in, what to do next comes out. The live manager and the
simulator carry it out, each in its own way.
"""
