"""Long checks with a table at the end; each exits non-zero when anything was lost or doubled."""
