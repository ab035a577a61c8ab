"""The pages of an index are embedded again, with another model than the one that it was built with."""
