"""Models behind HTTP: any OpenAI-compatible endpoint, and servers with interfaces of their own."""
