"""Commands with which users work in a job: run, exec, attach."""
