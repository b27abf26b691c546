"""WHERE it is remembered."""
