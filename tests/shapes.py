"""The type checker of `make test-all`: an int may stand where a float is declared."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
