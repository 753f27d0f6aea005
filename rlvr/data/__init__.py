"""Rows: reading and writing files, filtering tasks, comparing texts for overlap."""
