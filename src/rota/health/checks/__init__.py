"""Checks of a machine as small programs: exit 0 (good), 1 (warning) or 2 (severe), and one line of JSON."""
