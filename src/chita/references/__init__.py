"""References as text: Python objects, timm models and Hugging Face folders that a user names."""
