"""Commands for jobs: submit, ps, show, why, logs, cancel, hold, release, top."""
