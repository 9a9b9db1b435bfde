"""What bench/damage.py damages: checkpoints, run directories, corpora, pages; and hostile command lines."""
