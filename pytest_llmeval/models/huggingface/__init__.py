"""Models of the Hugging Face libraries, run in this process. The only room that imports torch."""
