"""What a sample of the operator table may name; tests/ops/sampling.py makes tensors of it."""

SAMPLE_WORDS = {
    "T",
    "P",
    "U",
    "S",
    "I",
    "B",
    "t",
    "float64",
    "float32",
    "int64",
    "int32",
    "bool",
    "float16",
    "bfloat16",
    "uint8",
}
