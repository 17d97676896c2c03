"""Models of the Hugging Face libraries, run in this process. The only folder that imports torch."""
