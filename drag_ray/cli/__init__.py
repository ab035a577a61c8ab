"""The command line: `drag-ray`."""
