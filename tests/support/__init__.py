"""What tests share and is no test."""
