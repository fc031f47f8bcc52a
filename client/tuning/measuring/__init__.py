"""How configurations are measured on a target and compared under noise."""
