"""WHO can work, one file each."""
