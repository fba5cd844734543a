"""The scenario: one value for everything that determines a run, from options to journal header and report."""

from rota.scenario.codec import decode_scenario, encode_scenario
from rota.scenario.experiment import Experiment
from rota.scenario.scenario import ClusterChange, FaultRates, Scenario
from rota.scenario.window import SteadyWindow, Trim

__all__ = [
    "ClusterChange",
    "Experiment",
    "FaultRates",
    "Scenario",
    "SteadyWindow",
    "Trim",
    "decode_scenario",
    "encode_scenario",
]
