"""Policies are compared on questions that training did not see."""
