"""`python -m surefoot` and `torchrun -m surefoot`."""

from surefoot.cli import main

main()
