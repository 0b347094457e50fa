"""The commands: with cli.py, the only modules that print to a person."""
