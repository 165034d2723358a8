"""The calls of other tools, answered by Headscope: BertViz, CircuitsVis, TransformerLens, inseq."""
