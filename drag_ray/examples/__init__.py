"""The embedded collection: the command reference of the AWS CLI."""
