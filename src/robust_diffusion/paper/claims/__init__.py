"""The paper's claims in words, as tests over records."""
