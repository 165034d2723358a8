"""The attention views of CircuitsVis, with its arguments, here and in `attention`."""

from . import attention as attention
from .attention import attention_heads as attention_heads
from .attention import attention_pattern as attention_pattern
from .attention import attention_patterns as attention_patterns
