"""MAY it happen? Pure functions from a handoff and the facts to a verdict, in one visible order."""
