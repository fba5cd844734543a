"""What keeps tasks apart, as the manager sets it up: Unix accounts, device rules, private folders and quotas.

The other half, what a new process does to itself before it becomes the task, is `task_runner/confine.py`.
"""
