"""Running on a cluster: plans of Slurm jobs, arrays of shards, and what each job checks first."""
