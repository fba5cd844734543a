"""What is assumed of the length of a job that does not state one."""

from __future__ import annotations

UNKNOWN_WORK_S = 3600.0
"""Seconds that a job of unknown length is assumed to run from now on."""
