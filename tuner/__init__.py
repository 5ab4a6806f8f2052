"""What acts: engine, store, workflows, jobs, API and command line."""
