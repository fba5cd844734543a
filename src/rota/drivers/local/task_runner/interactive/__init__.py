"""Interactive sessions of a task: its own terminal or pipes, and commands that users run beside it.

They belong to a process of their own, the *session host*, which the task's supervisor forks: with the task if that is
interactive, otherwise when a user first asks. It lives on when the manager ends, and keeps the terminals. The manager
connects to the socket `sessions.sock` in the task's folder and forwards frames between it and users' clients.
"""
