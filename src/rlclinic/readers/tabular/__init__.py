"""Rows in files made for programs: JSON lines and documents, separated columns, Parquet."""
