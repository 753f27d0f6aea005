"""Rows of data sets, and files that are whole or absent.

formats          rows from files of any common format
limits           what one row may take, held while it is read
tables           the rows of CSV and TSV
columns          where rows of other tools have prompt, reference and completion
hub, named_sets  the hub, without waiting where it does not answer; sets of papers by name
rows, lines      writes and reads JSON lines and Parquet, with checksums; one line of each
files            files that are whole or absent, also after a power cut
filtering        keeps tasks by pass rate, without duplicates and without those of a test set
overlap, grams   texts that share n-grams, in a set or with a test set
parallel         a function over many texts in several processes
tokens           lengths of texts in tokens
strengths        how strong each task is, by a report of `rlvr strength`
pairs            pairs, labelled and right completions from scored files
rollouts         the Parquet file of a step's rollouts
step_files       the file of one training step, from which anyone recomputes it

Contract: `formats.read_rows` gives each row, or a `DataError` that leaves out this row alone.
Sees `workers` and the ground, not `rewards`; every room above sees it.  `datasets` is imported here
alone, pyarrow also in `viewer.index` (drivers of other trainers apart).
Goes wrong: memory that grows with rows (see docs/promises.md), and an output that looks whole after
a crash: write through `files`.
"""
