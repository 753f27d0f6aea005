"""Rows of data sets.

lines      one row of a file; JSON lines and Parquet with checksums
hub        the hub, without waiting where it does not answer
formats    rows from files of any common format
columns    where rows of other tools have prompt, reference and completion
rows       writes JSONL and Parquet; loads data sets
filtering  keeps tasks by pass rate, without duplicates and without those of a test set
overlap    texts that share n-grams
"""
