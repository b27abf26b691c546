"""The board: work is tagged in Markdown files, and whoever swaps a tag first has it. The tags are the state."""
