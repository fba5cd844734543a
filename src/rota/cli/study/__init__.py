"""Commands that simulate: sim, report, trace, policies, profiles."""
