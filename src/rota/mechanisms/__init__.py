"""What policies are made of: a package for each family, the solvers, and how policies are declared."""
