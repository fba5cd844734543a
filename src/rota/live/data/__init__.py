"""What users keep with a manager beside jobs: templates of jobs, and the search over them."""
