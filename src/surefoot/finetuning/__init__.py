"""Fine-tuning: transformers models from local folders, adapters by peft, and 4-bit layers by bitsandbytes."""
