"""The papers' comparison: data sets, methods, jobs, and a script a table."""
