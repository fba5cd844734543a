"""Tasks in containers: the runtimes of this machine, and what each is told to run a task."""
