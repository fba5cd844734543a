from rota import policies as policies
from rota.core.errors import RotaError as RotaError
from rota.experiments.front_door import ExperimentResult as ExperimentResult
from rota.experiments.front_door import SimulationResult as SimulationResult
from rota.experiments.front_door import experiment as experiment
from rota.experiments.front_door import generate as generate
from rota.experiments.front_door import read_trace as read_trace
from rota.experiments.front_door import simulate as simulate
from rota.traces.workload import Workload as Workload

__version__: str
