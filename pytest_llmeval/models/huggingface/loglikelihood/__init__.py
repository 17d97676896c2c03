"""Log-likelihoods of continuations: plain, or with what requests share computed once."""
