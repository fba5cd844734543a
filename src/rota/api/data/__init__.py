"""Files of users over HTTP: artefacts of jobs, snapshots of code, data sets, and templates of jobs."""
