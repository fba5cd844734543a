"""Co-location policies: a rule that decides which jobs share devices, and how much each gets."""
