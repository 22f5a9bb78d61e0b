"""The state table beside what else holds rows: in this process, in files, in servers."""
