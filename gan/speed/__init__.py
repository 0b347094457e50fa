"""How fast training is, and data gets ready: measured side by side in one process."""
