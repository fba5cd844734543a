"""Files of users that a manager keeps: what jobs wrote, the code that they ran, and the data that they read."""
