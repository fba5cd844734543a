"""Templates of jobs: a job or sweep file with typed parameters, and the library of those that come with Rota."""
