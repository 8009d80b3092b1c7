"""What a run's rows say: pure functions of small records, no files and no rendering."""
