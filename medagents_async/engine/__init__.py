"""Runs thousands of questions at once over limited servers; knows nothing of medicine."""
