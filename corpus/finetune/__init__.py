"""Programs with one bug of fine-tuning each, and programs without a bug, for `bench/finetune_bugs.py`."""
