"""The engine: transitions per event, the policy's draft, dispatch of decisions, timers, invariants."""
