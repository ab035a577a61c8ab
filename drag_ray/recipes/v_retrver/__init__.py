"""V-Retrver (https://github.com/chendy25/V-Retrver): lists of candidates, put in order window by window."""
