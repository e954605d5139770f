"""sentence-transformers: encoding with a small BERT, similarity, search, saving, a loss."""

import json
import pathlib
import tempfile

import torch
from sentence_transformers import InputExample, SentenceTransformer, losses, models, util
from transformers import BertConfig, BertModel, BertTokenizerFast

folder, letters = tempfile.mkdtemp(), list("abcdefghijklmnopqrstuvwxyz")
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
pathlib.Path(folder, "vocab.txt").write_text("\n".join(words))
torch.manual_seed(0)
config = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
BertModel(BertConfig(vocab_size=len(words), **config)).save_pretrained(folder)
BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)
encoder = models.Transformer(folder, max_seq_length=32)
pooling = models.Pooling(encoder.get_word_embedding_dimension())
model = SentenceTransformer(modules=[encoder, pooling, models.Normalize()], device="cpu")
texts = ["hello world", "a cat", "a dog sat"]
found = model.encode(texts, convert_to_tensor=True, show_progress_bar=False)
figures = {"similarity": util.cos_sim(found, found).tolist()}
figures["nearest"] = [hits[1]["corpus_id"] for hits in util.semantic_search(found, found, top_k=2)]
model.save(f"{folder}/saved")
loaded = SentenceTransformer(f"{folder}/saved", device="cpu")
torch.testing.assert_close(loaded.encode(texts, convert_to_tensor=True, show_progress_bar=False), found)
examples = [InputExample(texts=["a b", "c d"], label=0.5), InputExample(texts=["x", "y z"], label=0.1)]
features, labels = model.smart_batching_collate(examples)
model.eval()
loss = losses.CosineSimilarityLoss(model)(features, labels)
loss.backward()
figures["loss"] = loss.item()
figures["gradient"] = sum(p.grad.norm().item() for p in model.parameters() if p.grad is not None)
print(json.dumps(figures))
