"""Work past one box: Slurm, Ray, and sweeps over methods, models, data and seeds."""
