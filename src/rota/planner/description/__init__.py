"""What a planner is given: operators, devices, and the files they are read from."""
