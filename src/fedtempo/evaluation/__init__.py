"""How users are scored: existing and new ones, before and after fine-tuning."""
