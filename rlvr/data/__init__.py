"""Rows of data sets.

rows       reads and writes JSONL and Parquet; loads data sets of the hub
filtering  keeps tasks by pass rate, without duplicates and without those of a test set
overlap    texts that share n-grams
"""
