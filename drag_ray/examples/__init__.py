"""The two embedded collections: the command reference of the AWS CLI, and the manuals of installed packages."""
