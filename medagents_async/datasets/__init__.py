"""Input: rows as published or canonical, checked before anything is sent, read lazily."""
