"""Texts and their classes: options, files, tokens, models. The loop is in text_classification."""
