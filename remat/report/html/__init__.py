"""A report as one HTML page: the template, style and scripts beside this file, filled with data."""
