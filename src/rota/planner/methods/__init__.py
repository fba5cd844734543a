"""The planners, one module each; `rota.planner.registry` lists them by name."""
