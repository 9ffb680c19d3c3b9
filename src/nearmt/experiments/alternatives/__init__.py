"""What a user would do instead of a memory: fine-tuning, adaptation to each sentence and copying, compared with it."""
