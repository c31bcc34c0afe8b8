"""Where the tokens of a block lie in memory: tensors, block tables and slots."""
