"""The command line and the ini file."""
