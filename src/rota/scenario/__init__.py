"""The scenario: one value for everything that determines a run, from options to journal header and report."""

from rota.scenario.codec import decode_scenario, encode_scenario
from rota.scenario.scenario import ClusterChange, FaultRates, Scenario

__all__ = ["ClusterChange", "FaultRates", "Scenario", "decode_scenario", "encode_scenario"]
