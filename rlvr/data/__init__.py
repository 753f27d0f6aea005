"""Rows: read and written, filtered, and compared for overlap."""
