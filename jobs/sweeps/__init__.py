"""Sweeps: methods × servers × data sets × seeds from one file, into one folder, with one report."""
