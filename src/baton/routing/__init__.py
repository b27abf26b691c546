"""WHO should do it? Pure."""
