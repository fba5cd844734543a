"""What keeps tasks apart: Unix accounts, cgroups, device rules, private folders and quotas, as the manager sets them up.

The other half, what a new process does to itself before it becomes the task, is `task_runner/confine.py`.
"""
