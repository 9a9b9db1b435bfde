"""The entry point of `python -m surefoot` and `torchrun -m surefoot`."""

from surefoot.cli.main import main

main()
