"""How the servers of language models are asked, each in its own way."""
