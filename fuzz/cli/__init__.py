"""The command line: a thin file for each command, which reads arguments, calls the library and prints."""
